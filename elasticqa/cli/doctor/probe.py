"""Prints what torch sees as JSON; a separate program, since a broken driver may hang or crash its process."""

import json
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist

from elasticqa.errors import first_line


def facts() -> dict[str, Any]:
    """Return versions, backends and GPUs, each with its properties and the error of its first use, if any."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # torch warns here if the driver is too old.
        torch.cuda.is_available()
        devices = [_device(index) for index in range(torch.cuda.device_count())]
    has_nccl = dist.is_available() and dist.is_nccl_available()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
        "devices": devices,
        "warnings": [str(warning.message).strip().splitlines()[0] for warning in caught],
    }


def _device(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    major, minor = torch.cuda.get_device_capability(index)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{major}.{minor}",
        "bf16": major >= 8,
        "error": _first_use(index),
    }


def _first_use(index: int) -> str | None:
    """Return the error of a matrix product on the device, or None: missing kernels and broken GPUs show only in use."""
    try:
        ones = torch.ones(64, 64, device=f"cuda:{index}")
        is_right = float((ones @ ones).sum()) == 64.0**3
    except RuntimeError as error:
        return first_line(error)
    return None if is_right else "the product of two matrices of ones is wrong"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts()))
