"""Cache of features: built once per node, then memory-mapped by all its processes."""

import hashlib
import json
import shutil
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from db.storage.file_lock import locked
from elasticqa.data.squad.features import Features, Windowing, build_features
from elasticqa.data.squad.read import read_content, read_squad
from elasticqa.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Increase when the columns or their computation change.
_FORMAT_VERSION = 1
_META = "meta.json"


@dataclass(frozen=True)
class FeatureRequest:
    """A SQuAD v1.1 file and how to build features from it."""

    path: Path
    for_training: bool
    """Skip examples with an answer that is not at its offset; with ``strict``, refuse the file instead."""
    windowing: Windowing
    max_examples: int | None = None
    """Use only the first N of the examples that are not skipped."""
    strict: bool = False


@dataclass(frozen=True)
class CachedFeatures:
    """Memory-mapped features of a file, and facts about it."""

    features: Features
    digest: str
    """SHA-256 of the file, in hex."""
    num_examples: int
    num_skipped_examples: int
    """Number of examples of the file with an answer that is not at its offset."""


def load_or_build(request: FeatureRequest, tokenizer: "PreTrainedTokenizerBase", cache_dir: Path) -> CachedFeatures:
    """Return the features, memory-mapped from ``cache_dir``; one process builds them while the others wait.

    If the building process dies, the next one builds. Damaged columns are built again.

    Raises:
        DataError: the file is not SQuAD v1.1.
        ConfigError: the tokenizer or the lengths do not allow features, or the cache cannot be written.
    """
    digest = hashlib.sha256(read_content(request.path)).hexdigest()
    folder = cache_dir / _key(request, digest, tokenizer)
    if (cached := _load(folder)) is not None:
        return cached
    try:
        with locked(folder.with_suffix(".lock")):
            if (cached := _load(folder)) is None:
                _build(request, digest, tokenizer, folder)
                cached = _load(folder)
    except OSError as error:
        shutil.rmtree(folder.with_suffix(".unfinished"), ignore_errors=True)
        raise ConfigError(
            f"features cannot be written to {cache_dir} ({error.strerror or error}): free space there, or set "
            "ELASTICQA_HOME to a directory with space"
        ) from error
    if cached is None:
        raise ConfigError(f"{folder} cannot be read back just after it was written: check the disk of the cache")
    return cached


def _key(request: FeatureRequest, digest: str, tokenizer: "PreTrainedTokenizerBase") -> str:
    backend = tokenizer.backend_tokenizer.to_str()
    options = asdict(request)
    del options["path"]
    parts = {
        "format_version": _FORMAT_VERSION,
        "file": digest,
        "tokenizer": hashlib.sha256(backend.encode()).hexdigest(),
        "model_input_names": tokenizer.model_input_names,
        **options,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _build(request: FeatureRequest, digest: str, tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write the folder atomically; the caller holds the lock."""
    data = read_squad(request.path, for_training=request.for_training, strict=request.strict)
    examples = data.examples[: request.max_examples]
    features = build_features(examples, tokenizer, request.windowing)
    unfinished = folder.with_suffix(".unfinished")
    for remains in (unfinished, folder):
        if remains.exists():
            shutil.rmtree(remains)
    unfinished.mkdir()
    checksums = {}
    for name in _COLUMNS:
        path = unfinished / f"{name}.npy"
        np.save(path, getattr(features, name), allow_pickle=False)
        checksums[name] = _checksum(path)
    meta = {
        "digest": digest,
        "num_examples": len(examples),
        "num_skipped_examples": data.num_skipped,
        "checksums": checksums,
    }
    (unfinished / _META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    unfinished.rename(folder)


_COLUMNS = tuple(field.name for field in fields(Features))


def _checksum(path: Path) -> int:
    return zlib.crc32(np.memmap(path, dtype=np.uint8, mode="r").data)


def _load(folder: Path) -> CachedFeatures | None:
    """Return the features, or None if they are absent or damaged."""
    try:
        meta: dict[str, Any] = json.loads((folder / _META).read_bytes())
        paths = {name: folder / f"{name}.npy" for name in _COLUMNS}
        if meta["checksums"] != {name: _checksum(path) for name, path in paths.items()}:
            return None
        # Convert to plain arrays: indexing a memmap creates a memmap, which is several times slower.
        columns = {name: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)) for name, path in paths.items()}
        return CachedFeatures(Features(**columns), meta["digest"], meta["num_examples"], meta["num_skipped_examples"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
