"""Triton kernels (`triton_*`), and the modules that make torch operators of them."""

import importlib
import importlib.util
from typing import Any


def triton_kernels(name: str) -> Any:
    """Return a module of this package with Triton kernels, or None if Triton is not installed (torch without CUDA)."""
    return importlib.import_module(f"{__package__}.{name}") if importlib.util.find_spec("triton") else None
