"""The exchange of gradients of a captured step: they are averaged where they lie, while the backward pass goes on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor, nn

from elasticqa.distributed.torch_internals import all_reduce_mean

BUCKET_BYTES = 100 * 2**20
"""Large ones keep NCCL's blocks off the matrix products for most of the pass (benchmarks/README.md)."""


class GradientReducer:
    """Averages the gradients of replicated parameters over the ranks, in buckets, as they become ready.

    DDP copies each gradient into a bucket, a launch each, and divides it on the way; NCCL needs neither.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], bucket_bytes: int = BUCKET_BYTES) -> None:
        """Put the parameters into buckets, the last first, as a backward pass reaches them.

        Args:
            parameters: in the order of the model; every rank has the same.
            bucket_bytes: size that ends a bucket.
        """
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
        """Exchange the gradients of the pass in the block; every rank must enter.

        On the way out the stream waits for what is under way. A bucket of which a gradient never came is sent last.
        """
        self._missing = [len(bucket) for bucket in self._buckets]
        try:
            yield
            for number, missing in enumerate(self._missing):
                if missing:
                    self._send(number)
        finally:
            # After an error too: a capture cannot end while NCCL's stream is apart from its own.
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
