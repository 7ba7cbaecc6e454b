"""Dispatches to the reader of a format; traces and bundles have their own."""

from db.importers.detect import FoundResults
from db.importers.errors import ImportFormatError
from db.importers.hf_trainer import RESULTS, read_hf_trainer, state_file
from db.importers.lightning import read_lightning
from db.importers.run import ImportedRun
from db.importers.tensorboard import is_event_file, read_tensorboard


def read_results(found: FoundResults) -> ImportedRun:
    """Return the run of some results, which are neither a trace nor a bundle.

    Raises:
        ImportFormatError: a file is damaged or cannot be read.
    """
    try:
        return _read(found)
    except OSError as error:
        raise ImportFormatError(found.path, "", f"cannot be read ({error.strerror or error})") from error


def _read(found: FoundResults) -> ImportedRun:
    path = found.path
    if found.kind == "lightning":
        return read_lightning(path)
    if found.kind == "tensorboard":
        files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if is_event_file(entry))
        return read_tensorboard(files, path.parent if path.is_file() else path)
    assert found.kind == "hf_trainer", found.kind
    if path.is_dir():
        return read_hf_trainer(state_file(path), path)
    # A results file belongs to the run of its folder; both paths give the same run.
    state = state_file(path.parent) if path.name in RESULTS else path
    return read_hf_trainer(state, path.parent)
