"""Peaks of devices, and utilization against hand-computed values."""

import pytest

from db.queries.utilization import mfu, peak_flops_per_s


@pytest.mark.parametrize(
    ("device_name", "precision"),
    [
        (None, "bf16"),
        ("NVIDIA H100 80GB HBM3", None),
        ("NVIDIA H100 80GB HBM3", "auto"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16"),
        ("Intel(R) Xeon(R) Platinum 8480+", "fp32"),
        ("Tesla T4", "bf16"),
    ],
)
def test_unknown_peak_is_none(device_name: str | None, precision: str | None) -> None:
    assert peak_flops_per_s(device_name, precision) is None


def test_utilization_is_of_all_devices() -> None:
    peak = peak_flops_per_s("NVIDIA A100-PCIE-40GB", "bf16")
    assert peak == 312e12
    # 100,000 tokens/s of 510 MFLOP a token are 51 TFLOP/s; two A100 have 624.
    assert mfu(100_000, 510e6, 2, peak) == pytest.approx(51 / 624)
