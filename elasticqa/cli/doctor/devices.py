"""torch and the GPUs that it can use."""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

TIMEOUT_S = 120
_NVIDIA = "0x10de"


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check torch and use each GPU once, in a separate process."""
    if find_spec("torch") is None:
        return [warn("torch", "not installed", "pip install 'elasticqa[train]', unless this machine only shows runs")]
    # -P keeps the program's directory off the import path: its modules have common names.
    command = [sys.executable, "-P", str(Path(__file__).with_name("probe.py"))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=dict(environ)
        )
    except subprocess.TimeoutExpired:
        return [
            fail("torch", f"no answer within {TIMEOUT_S} s", "check whether nvidia-smi answers; restart the machine")
        ]
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [fail("torch", f"cannot be used: {last}", "pip install --force-reinstall torch")]
    return judge(json.loads(done.stdout), nvidia_hardware(), environ.get("CUDA_VISIBLE_DEVICES"))


def nvidia_hardware(system: Path = Path("/sys")) -> tuple[bool, str | None]:
    """Return whether Linux's `/sys` lists an NVIDIA GPU, and the version of the loaded driver."""
    vendors = (system / "bus" / "pci" / "devices").glob("*/vendor")
    version = system / "module" / "nvidia" / "version"
    has_gpu = any(vendor.read_text().strip() == _NVIDIA for vendor in vendors)
    return has_gpu, version.read_text().strip() if version.is_file() else None


def judge(
    probe: Mapping[str, Any], hardware: tuple[bool, str | None], visible_devices: str | None = None
) -> list[Finding]:
    """Return the findings for the output of the probe, `nvidia_hardware` and the value of CUDA_VISIBLE_DEVICES."""
    has_gpu, driver = hardware
    backends = ["gloo"] * bool(probe["gloo"]) + ([f"NCCL {probe['nccl']}"] if probe["nccl"] else [])
    found = f"torch {probe['version']}, CUDA {probe['cuda'] or 'none'}, {', '.join(backends) or 'no backend'}"
    if not probe["gloo"]:
        findings = [fail("torch", found, "this build has no gloo, which ranks need: install torch from PyPI")]
    elif len(probe["devices"]) > 1 and not probe["nccl"]:
        findings = [fail("torch", found, "several GPUs need NCCL: install a torch build for CUDA")]
    else:
        findings = [ok("torch", found)]
    if not probe["devices"]:
        is_hidden = visible_devices is not None and visible_devices.strip() in ("", "-1")
        return [*findings, _no_gpu(probe, driver, has_gpu=has_gpu, is_hidden=is_hidden)]
    findings += [_gpu(index, device, driver) for index, device in enumerate(probe["devices"])]
    return [*findings, check_compiler(Path(sysconfig.get_path("include")), shutil.which("cc") or shutil.which("gcc"))]


def _no_gpu(probe: Mapping[str, Any], driver: str | None, *, has_gpu: bool, is_hidden: bool) -> Finding:
    if is_hidden:
        return ok("gpu", "hidden by CUDA_VISIBLE_DEVICES: training runs on the CPU in fp32")
    if not has_gpu:
        return ok("gpu", "none in this machine: training runs on the CPU in fp32")
    if probe["cuda"] is None:
        advice = "install a build for CUDA: https://pytorch.org/get-started/locally"
        return fail("gpu", f"there is an NVIDIA device, but torch {probe['version']} is built for CPUs only", advice)
    if driver is None:
        found = "there is an NVIDIA device, but its driver is not loaded"
        return fail("gpu", found, "install the driver; in a container, start it with its GPUs (--gpus all)")
    reason = f" ({probe['warnings'][0]})" if probe["warnings"] else ""
    found = f"driver {driver} is loaded, but torch built for CUDA {probe['cuda']} sees no device{reason}"
    advice = f"update the driver to one for CUDA {probe['cuda']}, or give this process the devices (/dev/nvidia*)"
    return fail("gpu", found, advice)


def _gpu(index: int, device: Mapping[str, Any], driver: str | None) -> Finding:
    found = (
        f"{index}: {device['name']}, {device['memory_bytes'] / 2**30:.1f} GiB, capability {device['capability']}, "
        f"{'bf16' if device['bf16'] else 'no bf16: trains in fp16'}, driver {driver or 'unknown'}"
    )
    if device["error"] is None:
        return ok("gpu", found)
    advice = (
        f"if kernels are missing, install a torch built for capability {device['capability']}; otherwise check "
        "nvidia-smi, or exclude this GPU with CUDA_VISIBLE_DEVICES"
    )
    return fail("gpu", f"{found}; first use failed: {device['error']}", advice)


def check_compiler(include: Path, compiler: str | None) -> Finding:
    """Return whether torch.compile can build the code that launches its kernels."""
    if compiler is None:
        return warn("compiler", "no C compiler on PATH, so torch.compile fails", "install gcc, or set CC to a compiler")
    if not (include / "Python.h").is_file():
        advice = "install Python's headers (python3-dev on Debian and Ubuntu)"
        return warn("compiler", f"no Python.h in {include}, so torch.compile fails", advice)
    return ok("compiler", f"{compiler}, headers in {include}")
