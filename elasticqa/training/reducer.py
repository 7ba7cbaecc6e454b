"""Average gradients over the ranks in a captured step, in place, while the backward pass continues."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor, nn

from elasticqa.distributed.torch_internals import all_reduce_mean

BUCKET_BYTES = 100 * 2**20
"""Large, since fewer NCCL kernels then compete with the matrix products for the GPU (benchmarks/README.md)."""


class GradientReducer:
    """Averages the gradients of replicated parameters over the ranks, in buckets, as they become ready.

    Coalesced NCCL calls reduce gradients in place; DDP would copy each gradient into a bucket and divide it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], bucket_bytes: int = BUCKET_BYTES) -> None:
        """Assign the parameters to buckets in the order that a backward pass reaches them: the last one first."""
        self._buckets: list[list[nn.Parameter]] = [[]]
        self._bucket_of: dict[nn.Parameter, int] = {}
        size = 0
        for parameter in reversed([each for each in parameters if each.requires_grad]):
            if size >= bucket_bytes:
                self._buckets.append([])
                size = 0
            self._buckets[-1].append(parameter)
            self._bucket_of[parameter] = len(self._buckets) - 1
            size += parameter.numel() * parameter.element_size()
            parameter.register_post_accumulate_grad_hook(self._note)
        self._missing: list[int] = []
        self._works: list[dist.Work] = []

    @contextmanager
    def during_backward(self) -> Iterator[None]:
        """Reduce the gradients of the backward pass in the block; every rank must enter.

        On exit the stream waits for pending collectives. A bucket with a missing gradient is reduced last.
        """
        self._missing = [len(bucket) for bucket in self._buckets]
        try:
            yield
            for number, missing in enumerate(self._missing):
                if missing:
                    self._send(number)
        finally:
            # Wait even after an error: a capture cannot end before NCCL's stream has joined the capturing stream.
            for work in self._works:
                work.wait()
            self._missing = []
            self._works = []

    def _note(self, parameter: Tensor) -> None:
        if not self._missing:
            return
        assert isinstance(parameter, nn.Parameter)
        number = self._bucket_of[parameter]
        self._missing[number] -= 1
        if not self._missing[number]:
            self._send(number)

    def _send(self, number: int) -> None:
        gradients = [parameter.grad for parameter in self._buckets[number] if parameter.grad is not None]
        if gradients:
            self._works.append(all_reduce_mean(gradients))
