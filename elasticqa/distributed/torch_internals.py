"""All uses of torch's private interface. Tried with torch 2.11 and 2.13; check this file first with another version.

Not here: the methods of torch's elastic agent that a subclass is meant to override (`elasticqa.elastic.agent`).
"""

import importlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import AllreduceCoalescedOptions
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SubprocessContext
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, _RendezvousExitOp
from torch.distributed.launcher import api as launcher
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor  # its import takes a second, which the elastic agent does not need

foreach_add_ = torch._foreach_add_
foreach_sub_ = torch._foreach_sub_
foreach_copy_ = torch._foreach_copy_
update_loss_scale_ = torch._amp_update_scale_

_TORCH_CACHE_VARIABLE, _TRITON_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"


def flash_attention(
    query_key_value: Sequence[Tensor], cu_lengths: Tensor, max_length: int, *, dropout: float, scaling: float | None
) -> Tensor:
    """Return bidirectional flash attention of packed sequences, (tokens, heads, head size), the shape of each input.

    ``cu_lengths`` are cumulative lengths of the sequences, from 0, int32. ``scaling`` is the factor of the scores; None
    stands for the inverse square root of the head size.
    """
    # torch.nn.attention.varlen.varlen_attn has no dropout; the operator below it does.
    return torch.ops.aten._flash_attention_forward(  # type: ignore[no-any-return]
        *query_key_value, cu_lengths, cu_lengths, max_length, max_length, dropout, False, False, scale=scaling
    )[0]


def ignore_buffers_in_ddp(model: nn.Module) -> None:
    """Keep DDP from broadcasting the buffers of a model before every forward pass."""
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        model, [name for name, _ in model.named_buffers()]
    )


def compile_without_ddp_splits() -> None:
    """Keep torch.compile from splitting graphs at DDP's buckets."""
    torch._dynamo.config.optimize_ddp = False


def set_compile_caches(cache: Path) -> None:
    """Keep compiled code in ``cache``, where the next start finds it, unless the environment names another place."""
    # Importing parts of torch sets the variable to torch's default, a temporary directory; replace that value.
    # Import it here: the import takes a second, and only runs that compile need it.
    default = importlib.import_module("torch._inductor.runtime.cache_dir_utils").default_cache_dir()
    if os.environ.get(_TORCH_CACHE_VARIABLE) == os.fspath(Path(default).absolute()):
        del os.environ[_TORCH_CACHE_VARIABLE]
    os.environ.setdefault(_TORCH_CACHE_VARIABLE, os.fspath(cache / "compiled"))
    os.environ.setdefault(_TRITON_CACHE_VARIABLE, os.fspath(cache / "triton"))


def set_shard(tensor: "DTensor", shard: Tensor) -> None:
    """Make ``shard`` the local part of a tensor; DTensor's constructor would move it to the device of the mesh."""
    tensor._local_tensor = shard


def all_reduce_mean(tensors: Sequence[Tensor]) -> dist.Work:
    """Start to average tensors over all ranks, in place and as one NCCL operation; a collective."""
    options = AllreduceCoalescedOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.AVG)
    assert dist.group.WORLD is not None
    return dist.group.WORLD.allreduce_coalesced(list(tensors), options)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a device ran out.

    torch.OutOfMemoryError covers only torch's allocator. The CUDA driver (during a graph capture), Triton and NCCL
    raise other types with "out of memory" in the message.
    """
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def use_elastic_agent(make_agent: Callable[..., LocalElasticAgent]) -> None:
    """Make torchrun create its elastic agent with ``make_agent``; it has no option for this."""
    launcher.LocalElasticAgent = make_agent  # type: ignore[assignment, attr-defined]


class TorchAgent(LocalElasticAgent):
    """torch's elastic agent, with public methods for the state that it hides."""

    def worker_pids(self) -> dict[int, int]:
        """Return local rank -> process id of the workers; empty before they are started."""
        return {} if self._pcontext is None else self._pcontext.pids()

    def worker_exit_codes(self) -> dict[int, int | None]:
        """Return local rank -> exit code of the workers, None for one that runs."""
        context = self._pcontext
        assert isinstance(context, SubprocessContext)
        return {local: handler.proc.poll() for local, handler in context.subprocess_handlers.items()}

    def call_before_closing(self, action: Callable[[], None]) -> None:
        """Call ``action`` once, just before torch stops the workers, which it does as soon as it finds one dead."""
        context = self._pcontext
        assert context is not None
        close = context.close

        def act_and_close(*arguments: Any, **options: Any) -> None:
            context.close = close  # type: ignore[method-assign]
            action()
            close(*arguments, **options)

        context.close = act_and_close  # type: ignore[method-assign]

    def close_workers(self, death_signal: Signals, timeout_s: int) -> None:
        """Send the signal to the workers, and SIGKILL after the timeout."""
        if self._pcontext is not None:
            self._pcontext.close(death_signal, timeout_s)

    def forbid_restarts(self) -> None:
        """Let the next failure of a worker end the job."""
        self._remaining_restarts = 0

    def allow_one_more_restart(self) -> None:
        """Do not count the next restart."""
        self._remaining_restarts += 1

    def leave_rendezvous(self, timeout_s: float) -> None:
        """Remove this node from the rendezvous: the other nodes need not wait for its keep-alive timeout."""
        handler = self._worker_group.spec.rdzv_handler
        assert isinstance(handler, DynamicRendezvousHandler)
        handler._stop_heartbeats()
        try:
            handler._op_executor.run(_RendezvousExitOp(), time.monotonic() + timeout_s)
        except RendezvousError:
            return  # the store is lost, so no other node waits
