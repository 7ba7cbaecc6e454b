"""The probe with a working and a broken torch, and the findings for its output."""

import os
from pathlib import Path
from typing import Any

import pytest

from elasticqa.cli.doctor.devices import check, check_compiler, judge, nvidia_hardware

NOTHING = (False, None)
LOADED = (True, "550.54")
H100 = {"name": "H100", "memory_bytes": 80 * 2**30, "capability": "9.0", "bf16": True, "error": None}
T4 = {"name": "T4", "memory_bytes": 15 * 2**30, "capability": "7.5", "bf16": False, "error": None}


def probe(**changes: Any) -> dict[str, Any]:
    """Return the probe's output for a CUDA build without devices, with changes."""
    whole = {"version": "2.13.0", "cuda": "12.8", "gloo": True, "nccl": "2.27.5", "devices": [], "warnings": []}
    return whole | changes


def test_probe_runs_here() -> None:
    findings = check(os.environ)
    assert findings[0].status == "ok"
    assert findings[0].found.startswith("torch 2.")
    assert findings[1].check == "gpu"


def test_torch_that_cannot_be_imported_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so: cannot open shared object file')")
    (finding,) = check({**os.environ, "PYTHONPATH": str(tmp_path)})
    assert finding.status == "fail"
    assert "libcudart.so" in finding.found


def test_gpus_are_listed_with_their_precision() -> None:
    torch, first, second, _ = judge(probe(devices=[H100, T4]), LOADED)
    assert torch.found == "torch 2.13.0, CUDA 12.8, gloo, NCCL 2.27.5"
    assert first.found == "0: H100, 80.0 GiB, capability 9.0, bf16, driver 550.54"
    assert second.found == "1: T4, 15.0 GiB, capability 7.5, no bf16: trains in fp16, driver 550.54"
    assert {torch.status, first.status, second.status} == {"ok"}


def test_gpu_that_fails_at_first_use_fails() -> None:
    error = "CUDA error: no kernel image is available for execution on the device"
    gpu = judge(probe(devices=[H100 | {"error": error}]), LOADED)[1]
    assert gpu.status == "fail"
    assert error in gpu.found
    assert "capability 9.0" in (gpu.advice or "")


@pytest.mark.parametrize(
    ("changes", "expected"), [({"gloo": False}, "no gloo"), ({"nccl": None, "devices": [H100, H100]}, "need NCCL")]
)
def test_torch_without_a_backend_that_is_needed_fails(changes: dict[str, Any], expected: str) -> None:
    torch = judge(probe(**changes), LOADED)[0]
    assert torch.status == "fail"
    assert expected in (torch.advice or "")


@pytest.mark.parametrize(
    ("changes", "hardware", "visible_devices", "status", "expected"),
    [
        ({"cuda": None}, NOTHING, None, "ok", "none in this machine"),
        ({}, (True, "1"), "", "ok", "hidden by CUDA_VISIBLE_DEVICES"),
        ({"cuda": None}, LOADED, None, "fail", "is built for CPUs only"),
        ({}, (True, None), None, "fail", "driver is not loaded"),
        ({"warnings": ["The NVIDIA driver on your system is too old"]}, LOADED, None, "fail", "is too old"),
    ],
)
def test_missing_gpu_is_ok_only_if_the_machine_has_none_or_it_is_hidden(
    changes: dict[str, Any], hardware: tuple[bool, str | None], visible_devices: str | None, status: str, expected: str
) -> None:
    gpu = judge(probe(**changes), hardware, visible_devices)[1]
    assert gpu.status == status
    assert expected in gpu.found


def test_hardware_is_read_from_the_system(tmp_path: Path) -> None:
    assert nvidia_hardware(tmp_path) == NOTHING
    for number, vendor in enumerate(("0x8086", "0x10de")):
        device = tmp_path / "bus" / "pci" / "devices" / f"0000:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    (tmp_path / "module" / "nvidia").mkdir(parents=True)
    (tmp_path / "module" / "nvidia" / "version").write_text("550.54\n")
    assert nvidia_hardware(tmp_path) == LOADED


def test_compile_needs_a_compiler_and_headers(tmp_path: Path) -> None:
    assert check_compiler(tmp_path, None).status == "warn"
    assert "no Python.h" in check_compiler(tmp_path, "/usr/bin/cc").found
    (tmp_path / "Python.h").write_text("")
    assert check_compiler(tmp_path, "/usr/bin/cc").status == "ok"
