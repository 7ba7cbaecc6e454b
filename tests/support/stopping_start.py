"""The trainer with one rank that stops itself during its first start: run by test_hangs.py on real ranks."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

MOMENT_VARIABLE = "TEST_STOPS_AT"
RANK_VARIABLE = "TEST_STOPS_RANK"
IMPORTS, BEFORE_GROUP, IN_GROUP, CONNECTING, LOADING = "imports", "before group", "in group", "connecting", "loading"


def stop_at(moment: str) -> None:
    """Stop this process if rank and moment are those of the variables."""
    wanted = (os.environ[MOMENT_VARIABLE], os.environ[RANK_VARIABLE])
    if wanted == (moment, os.environ["RANK"]) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGSTOP)


def stopping(moment: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the moment before it."""

    @functools.wraps(function)
    def stop_and_call(*arguments: Any, **options: Any) -> Any:
        stop_at(moment)
        return function(*arguments, **options)

    return stop_and_call


if __name__ == "__main__":
    stop_at(IMPORTS)
    from torch import distributed as dist
    from torch.distributed import distributed_c10d

    from elasticqa.elastic import transport
    from elasticqa.training import loading, main

    dist.init_process_group = stopping(BEFORE_GROUP, dist.init_process_group)
    # Called once the store exists, with which all ranks wait for each other.
    helper = distributed_c10d._new_process_group_helper
    distributed_c10d._new_process_group_helper = stopping(IN_GROUP, helper)
    # Rank 0 accepts connections, all others connect.
    transport.connect = stopping(CONNECTING, transport.connect)
    peers = transport.PeerConnections
    peers._accept_all = stopping(CONNECTING, peers._accept_all)  # type: ignore[method-assign]
    loading.load_task = stopping(LOADING, loading.load_task)  # type: ignore[attr-defined]
    sys.exit(main.main())
