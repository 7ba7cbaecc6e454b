"""Finds results in files and folders, and reads them; traces and bundles are found here but read elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from db.importers.fields import ImportFormatError
from db.importers.hf_trainer import RESULTS, STATE, read_hf_trainer, state_file
from db.importers.kineto import is_trace
from db.importers.lightning import METRICS, read_lightning
from db.importers.run import ImportedRun
from db.importers.tensorboard import is_event_file, read_tensorboard

Kind = Literal["hf_trainer", "lightning", "tensorboard", "kineto", "bundle"]
MAX_FOLDERS = 1_000
_BUNDLE_ENDINGS = (".tar.gz", ".tgz")
_TRACE_ENDINGS = (".json", ".json.gz")
KNOWN = (
    "trainer_state.json or *_results.json (Hugging Face Trainer), metrics.csv (Lightning), *tfevents* (TensorBoard), "
    "*.json or *.json.gz with traceEvents (Kineto), a .tar.gz of `elasticqa export`"
)


@dataclass(frozen=True)
class FoundResults:
    """Results of one run in a known format."""

    kind: Kind
    path: Path
    """The file, or the folder of a format with several files."""


def find_results(path: Path) -> list[FoundResults]:
    """Return the results in a file or folder; a folder without any is searched one level deeper.

    Raises:
        ImportFormatError: there are no results in a known format.
    """
    with _errors_of(path):
        if path.is_dir():
            found = list(_in_folder(path))
            if not found:
                folders = sorted(entry for entry in path.iterdir() if entry.is_dir())[:MAX_FOLDERS]
                found = [item for folder in folders for item in _in_folder(folder)]
            if not found:
                raise ImportFormatError(path, "", f"contains no results in a known format: {KNOWN}")
            return found
        if not path.exists():
            raise ImportFormatError(path, "", "does not exist: give a file or a folder")
        if not path.is_file():
            raise ImportFormatError(path, "", "is neither a file nor a folder")
        if path.stat().st_size == 0:
            raise ImportFormatError(path, "", "is empty")
        return [FoundResults(_kind_of(path), path)]


def read_results(found: FoundResults) -> ImportedRun:
    """Return the run of some results, which are neither a trace nor a bundle.

    Raises:
        ImportFormatError: a file is damaged or cannot be read.
    """
    path = found.path
    with _errors_of(path):
        if found.kind == "lightning":
            return read_lightning(path)
        if found.kind == "tensorboard":
            files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if is_event_file(entry))
            return read_tensorboard(files, path.parent if path.is_file() else path)
        assert found.kind == "hf_trainer", found.kind
        if path.is_dir():
            return read_hf_trainer(state_file(path), path)
        # A results file belongs to the run of its folder: importing the file or the folder gives the same run.
        state = state_file(path.parent) if path.name in RESULTS else path
        return read_hf_trainer(state, path.parent)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise errors of the file system as ImportFormatError."""
    try:
        yield
    except OSError as error:
        raise ImportFormatError(path, "", f"cannot be read ({error.strerror or error})") from error


def _in_folder(folder: Path) -> Iterator[FoundResults]:
    """Yield the results of a folder in its most detailed format; the other formats describe the same run."""
    if state_file(folder) or any((folder / name).is_file() for name in RESULTS):
        yield FoundResults("hf_trainer", folder)
    elif (folder / METRICS).is_file():
        yield FoundResults("lightning", folder / METRICS)
    elif any(is_event_file(entry) for entry in folder.iterdir()):
        yield FoundResults("tensorboard", folder)
    else:
        for entry in sorted(folder.iterdir()):
            if entry.is_file() and entry.name.endswith(_TRACE_ENDINGS) and is_trace(entry):
                yield FoundResults("kineto", entry)


def _kind_of(path: Path) -> Kind:
    if path.name.endswith(_BUNDLE_ENDINGS):
        return "bundle"
    if is_event_file(path):
        return "tensorboard"
    if path.suffix == ".csv":
        return "lightning"
    if path.name in (STATE, *RESULTS):
        return "hf_trainer"
    if path.name.endswith(_TRACE_ENDINGS):
        return "kineto" if is_trace(path) else "hf_trainer"
    raise ImportFormatError(path, "", f"has no known format: {KNOWN}")
