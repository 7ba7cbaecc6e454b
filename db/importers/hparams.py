"""`hparams.yaml` of Lightning, read as plain data; its tags are never executed."""

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db.importers.fields import ImportFormatError, settings, shown

MAX_BYTES = 2**18
_Event = tuple[str, float, dict[str, Any]]


def read_hparams(path: Path, t: float) -> tuple[dict[str, Any], tuple[_Event, ...]]:
    """Return the settings (empty without a file), and an event if they had to be skipped.

    Settings with objects of a program's classes are skipped: only that program could construct them.

    Raises:
        ImportFormatError: the file is not YAML, not a mapping, or larger than 256 KiB.
    """
    if not path.is_file():
        return {}, ()
    if path.stat().st_size > MAX_BYTES:
        raise ImportFormatError(path, "", f"over {MAX_BYTES // 2**10} KiB, the limit")
    if importlib.util.find_spec("yaml") is None:
        return {}, _skipped(path, t, "PyYAML is not installed")
    yaml = importlib.import_module("yaml")
    try:
        values = yaml.safe_load(path.read_bytes())
    except yaml.constructor.ConstructorError as error:
        return {}, _skipped(path, t, f"{error.problem}")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ImportFormatError(path, "", f"is not readable YAML ({type(error).__name__}: {error})") from error
    if values is None:
        return {}, ()
    if not isinstance(values, Mapping):
        raise ImportFormatError(path, "", f"{shown(values)} is not a mapping of names to values")
    return settings(path, values), ()


def _skipped(path: Path, t: float, reason: str) -> tuple[_Event, ...]:
    message = f"{path.name} was skipped: {reason}"
    return (("event", t, {"name": "settings_skipped", "message": message, "data": {}}),)
