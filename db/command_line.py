"""Argument parser of all commands: errors are one line."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser with errors on one line and without abbreviated options."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; --help lists the options\n")

    def refuse(self, error: Exception) -> int:
        """Print an error as one line and return exit status 2, for a request that cannot be met."""
        sys.stderr.write(f"{self.prog}: {' '.join(str(error).split())}\n")
        return 2


def count_up_to(limit: int) -> Callable[[str], int]:
    """Return the type of an option that is a number from 1 to a limit."""

    def convert(value: str) -> int:
        if not (value.isascii() and value.isdigit() and len(value) < 12 and 1 <= int(value) <= limit):
            raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1 to {limit:,}")
        return int(value)

    return convert
