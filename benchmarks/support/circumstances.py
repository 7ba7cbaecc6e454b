"""What a result is read with: machine, load, date and command."""

import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def without_folders(arguments: list[str]) -> list[str]:
    """Return a command's arguments without the folders of this machine."""
    return [Path(each).name if "/" in each else each for each in arguments]


def circumstances(module: str) -> dict[str, Any]:
    """Return the facts that every result of this machine carries.

    Args:
        module: of the benchmark, as ``python -m`` takes it.
    """
    name = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "cpu": f"{name[1] if name else platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", "-m", module, *without_folders(sys.argv[1:])]),
    }
