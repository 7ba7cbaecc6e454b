"""The trainer, of whose first start one rank stops itself at a moment of it: run by test_hang.py on real ranks."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

MOMENT_VARIABLE = "TEST_STOPS_AT"
RANK_VARIABLE = "TEST_STOPS_RANK"
IMPORTS, BEFORE_GROUP, IN_GROUP, MEETING, LOADING = "imports", "before group", "in group", "meeting", "loading"


def stop_at(moment: str) -> None:
    """Stop this process if it is the one, and this the moment."""
    facts = (os.environ[MOMENT_VARIABLE], os.environ[RANK_VARIABLE])
    if facts == (moment, os.environ["RANK"]) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGSTOP)


def stopping(moment: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the moment before it."""

    @functools.wraps(function)
    def stops(*arguments: Any, **options: Any) -> Any:
        stop_at(moment)
        return function(*arguments, **options)

    return stops


if __name__ == "__main__":
    stop_at(IMPORTS)
    from torch import distributed as dist
    from torch.distributed import distributed_c10d

    from elasticqa.elastic import health_check
    from elasticqa.training import main

    dist.init_process_group = stopping(BEFORE_GROUP, dist.init_process_group)
    # Called once the store is there, with which all ranks wait for each other.
    helper = distributed_c10d._new_process_group_helper
    distributed_c10d._new_process_group_helper = stopping(IN_GROUP, helper)
    # The one on all ranks but the first, the other on that one.
    health_check.connect = stopping(MEETING, health_check.connect)  # type: ignore[attr-defined]
    health_check.Watch._meet = stopping(MEETING, health_check.Watch._meet)  # type: ignore[method-assign]
    main.load_task = stopping(LOADING, main.load_task)  # type: ignore[attr-defined]
    sys.exit(main.main())
