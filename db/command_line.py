"""The command line of every program that has options: what is wrong with it is said in one line."""

import argparse
import sys
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that takes no option by its beginning."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; --help tells the options\n")

    def refuse(self, error: Exception) -> int:
        """Print an error as one line and return exit status 2, for a request that cannot be met."""
        sys.stderr.write(f"{self.prog}: {' '.join(str(error).split())}\n")
        return 2
