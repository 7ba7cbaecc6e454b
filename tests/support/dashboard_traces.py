"""Summaries of profiler traces for the journals of `dashboard_data`."""

from typing import Any

SPAN_US = 200_000.0


def _device(device: int, *, computing: float, communicating: float) -> dict[str, Any]:
    """Return a device with these shares of the trace's time; half of the communication is exposed."""
    busy = computing + communicating / 2 + 0.02
    return {
        "device": device,
        "name": "NVIDIA H100 80GB HBM3",
        "num_kernels": 4_200,
        "busy_us": busy * SPAN_US,
        "compute_us": computing * SPAN_US,
        "communication_us": communicating * SPAN_US,
        "exposed_communication_us": communicating / 2 * SPAN_US,
        "memcpy_us": 0.02 * SPAN_US,
        "memset_us": 0.01 * SPAN_US,
        "idle_us": (1 - busy) * SPAN_US,
        "host_bound_us": (1 - busy) / 2 * SPAN_US,
        "host_bound_share": (1 - busy) / 2,
    }


def _common() -> dict[str, Any]:
    operators = [
        {"name": name, "category": category, "count": 240, "self_us": self_us, "total_us": 2 * self_us}
        for name, category, self_us in (
            ("aten::addmm", "matmul", 21_000.0),
            ("aten::copy_", "copy", 9_000.0),
            ("aten::layer_norm", "normalisation", 4_000.0),
        )
    ]
    categories = [{"category": row["category"], "count": 240, "time_us": row["self_us"]} for row in operators]
    return {
        "span_us": SPAN_US,
        "num_events": 52_000,
        "num_skipped_events": 0,
        "rank": 0,
        "world_size": None,
        "backend": None,
        "steps": {
            "num_steps": 10,
            "mean_us": 20_000.0,
            "min_us": 19_100.0,
            "max_us": 22_400.0,
            "times_us": [20_000.0] * 10,
        },
        "host": {
            "num_threads": 3,
            "operator_us": 92_000.0,
            "busy_us": 80_000.0,
            "communication_us": 0.0,
            "exposed_communication_us": 0.0,
            "num_launches": None,
            "num_graph_launches": None,
            "launch_us": None,
            "wait_us": None,
        },
        "devices": None,
        "operators": operators,
        "operator_categories": categories,
        "num_operator_names": 41,
        "kernels": None,
        "kernel_categories": None,
        "num_kernel_names": None,
    }


CPU_PROFILE = _common()


def gpu_profile(world_size: int) -> dict[str, Any]:
    """Return the summary of one rank's trace; more ranks communicate more."""
    summary = _common()
    share = 0.05 * (world_size - 1)
    kernels = [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT", "matmul", 84_000.0),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor>", "elementwise", 31_000.0),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", "attention", 22_000.0),
    ]
    summary["world_size"], summary["backend"] = world_size, "nccl"
    summary["devices"] = [_device(0, computing=0.72 - share / 2, communicating=share)]
    summary["host"] |= {"num_launches": 4_300, "num_graph_launches": 10, "launch_us": 9_000.0, "wait_us": 61_000.0}
    summary["kernels"] = [
        {"name": name, "category": category, "count": 480, "total_us": time_us} for name, category, time_us in kernels
    ]
    summary["kernel_categories"] = [
        {"category": category, "count": 480, "time_us": time_us} for _, category, time_us in kernels
    ]
    summary["num_kernel_names"] = 63
    return summary


def hostile_profile(text: str) -> dict[str, Any]:
    """Return a summary with this text in every field of free text."""
    summary = gpu_profile(1)
    for key in ("operators", "operator_categories", "kernels", "kernel_categories"):
        summary[key] = [{**row, "category": text} | ({"name": text} if "name" in row else {}) for row in summary[key]]
    return {**summary, "backend": text}
