"""`elasticqa checkpoints`: list and verify the checkpoints of a run."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from db.command_line import Parser
from db.reports.cells import moment, number, text
from db.reports.plain import to_plain
from db.reports.tables import Column, table_of
from elasticqa.checkpoint.manifest import checkpoint_directories, has_all_bytes, read_manifest, step_of
from elasticqa.checkpoint.retention import SET_ASIDE, noted_best
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import CheckpointError, ConfigError
from elasticqa.run.home import find_run, runs_dir


@dataclass(frozen=True)
class Row:
    """A checkpoint; ``reason``, ``saved_at`` and ``bytes`` are None if the manifest cannot be read.

    ``state`` is ``whole``, ``torn`` (a file is missing or has another size) or ``flipped`` (a checksum differs).
    """

    step: int
    state: str
    is_newest: bool
    is_best: bool
    is_set_aside: bool
    reason: str | None
    saved_at: float | None
    bytes: int | None
    directory: str


def _kept_as(row: Row) -> str:
    return text(", ".join(name for name in ("newest", "best", "set_aside") if getattr(row, f"is_{name}")))


_COLUMNS: tuple[Column[Row], ...] = (
    Column("step", lambda row: str(row.step), is_number=True),
    Column("state", lambda row: row.state),
    Column("kept as", _kept_as),
    Column("reason", lambda row: text(row.reason)),
    Column("saved (UTC)", lambda row: moment(row.saved_at)),
    Column("MiB", lambda row: number(None if row.bytes is None else row.bytes / 2**20, 1), is_number=True),
    Column("directory", lambda row: text("/".join(Path(row.directory).parts[-2 if row.is_set_aside else -1 :]))),
)


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Print the checkpoints of a run.

    Returns:
        0, 1 if --verify finds a damaged checkpoint, or 2 if there is no such run.
    """
    parser = Parser(prog="elasticqa checkpoints", description="List the checkpoints of a run, newest first.")
    parser.add_argument("run", metavar="RUN", help="run id or unique prefix")
    parser.add_argument(
        "--verify", action="store_true", help="also compare the checksum of every file; exit status 1 if one is damaged"
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    options = parser.parse_args(argv)
    try:
        directory = find_run(options.run, runs_dir(environ)) / "checkpoints"
    except ConfigError as error:
        return parser.refuse(error)
    rows = rows_of(directory, verify=options.verify)
    if options.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    else:
        note = f"in {text(directory)}" if rows else "this run has no checkpoints"
        sys.stdout.write(to_plain(table_of("Checkpoints", _COLUMNS, rows, [note])))
    return int(options.verify and any(row.state != "whole" for row in rows))


def rows_of(directory: Path, *, verify: bool) -> list[Row]:
    """Return the checkpoints in a directory, newest first, then those in its folder ``set-aside``."""
    best = noted_best(directory)
    rows: list[Row] = []
    for path in checkpoint_directories(directory):
        is_newest = not any(row.is_newest for row in rows)
        rows.append(_row(path, verify=verify, is_newest=is_newest, is_best=best is not None and best[0] == path))
    return rows + [_row(path, verify=verify) for path in checkpoint_directories(directory / SET_ASIDE)]


def _row(path: Path, *, verify: bool, is_newest: bool = False, is_best: bool = False) -> Row:
    manifest, state = None, "whole"
    try:
        manifest = read_manifest(path, verify=False)
        if not has_all_bytes(path):
            state = "torn"
        elif verify:
            state = "flipped"
            read_manifest(path, verify=True)
            state = "whole"
    except CheckpointError:
        state = "torn" if manifest is None else state
    return Row(
        step=step_of(path),
        state=state,
        is_newest=is_newest and state == "whole",
        is_best=is_best,
        is_set_aside=path.parent.name == SET_ASIDE,
        reason=manifest.reason if manifest else None,
        saved_at=manifest.saved_at if manifest else None,
        bytes=manifest.num_bytes if manifest else None,
        directory=str(path),
    )
