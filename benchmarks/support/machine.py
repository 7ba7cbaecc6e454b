"""Processor, load, date and command of a measurement on the CPU."""

import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def without_folders(arguments: list[str]) -> list[str]:
    """Return a command's arguments, each path without its directories."""
    return [Path(each).name if "/" in each else each for each in arguments]


def machine_facts(module: str) -> dict[str, Any]:
    """Return processor, load, date and command.

    Args:
        module: name of the benchmark's module.
    """
    name = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "cpu": f"{name[1] if name else platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", "-m", module, *without_folders(sys.argv[1:])]),
    }
