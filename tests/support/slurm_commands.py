"""Fake Slurm commands, and the files of submitted jobs."""

import json
import shlex
from pathlib import Path

FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


NO_ACCOUNTS = "echo 'Slurm accounting storage is disabled' >&2; exit 1"


def install(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (directory / name).chmod(0o755)


def answer(directory: Path, name: str, *lines: str) -> None:
    install(directory, name, f"printf '%s\\n' {shlex.join(lines)}" if lines else "true")


def submitted(logs: Path, job: str, status: int | None) -> None:
    (logs / f"{job}.json").write_text(json.dumps({"name": "ddp"}), encoding="utf-8")
    if status is not None:
        (logs / f"{job}.exit").write_text(f"{status}\n", encoding="utf-8")
    for name in ("batch", "0", "1"):
        (logs / f"{job}-{name}.log").write_text("", encoding="utf-8")
