"""What the exit statuses of workers say: who left and why, and whether to start them again."""

import signal
from collections.abc import Collection

from elasticqa.elastic.failures import Departure, departure
from elasticqa.elastic.stack_dumps import PEER_LOST
from elasticqa.errors import ExitCode


def is_refusal(exit_codes: Collection[int]) -> bool:
    """Whether workers refused the request; some may have been ended, or have missed others, before they said so."""
    others = {ExitCode.BAD_REQUEST, ExitCode.STOPPED, ExitCode.PEER_LOST, -PEER_LOST, -signal.SIGTERM}
    return ExitCode.BAD_REQUEST in exit_codes and others.issuperset(exit_codes)


def departure_of(rank: int, host: str, exit_code: int) -> Departure | None:
    """Return what the exit status of a worker says; None where others say more."""
    who = f"rank {rank} on {host}"
    if exit_code == -PEER_LOST:
        return departure("gone", who, "was sent SIGUSR2 to keep its stacks")
    if exit_code < 0:
        return departure("killed", who, f"was killed by {_name(-exit_code)}")
    if exit_code in (ExitCode.STOPPED, ExitCode.PEER_LOST):
        return None
    return departure("ended", who, f"ended with status {exit_code}")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
