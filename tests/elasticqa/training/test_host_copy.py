"""Results on their way to the host."""

import torch

from elasticqa.training.host_copy import HostCopies


def test_entries_are_read_in_order_with_a_lag_and_unchanged_on_a_cpu() -> None:
    copies: HostCopies[str] = HostCopies()
    values = [torch.full((2,), float(number)) for number in range(3)]
    for name, each in zip("abc", values, strict=True):
        copies.push(name, each)
    assert [(name, on_host is values[0]) for name, on_host in copies.read(lag=2)] == [("a", True)]
    assert [name for name, _ in copies.read(lag=0)] == ["b", "c"]
    assert not list(copies.read(lag=0))
