"""What the exit status of a worker says of who left and why."""

import signal

import pytest

from elasticqa.elastic.exit_codes import departure_of, is_refusal
from elasticqa.elastic.stack_dumps import PEER_LOST
from elasticqa.errors import ExitCode


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        (-signal.SIGKILL, "killed", "was killed by SIGKILL"),
        (-signal.SIGSEGV, "killed", "was killed by SIGSEGV"),
        (-63, "killed", "was killed by signal 63"),
        (-PEER_LOST, "gone", "was sent SIGUSR2 to keep its stacks"),
        (3, "ended", "ended with status 3"),
    ],
)
def test_status_is_told_with_rank_and_host(code: int, kind: str, what: str) -> None:
    found = departure_of(4, "host-b", code)
    assert found is not None
    assert (found.kind, str(found)) == (kind, f"rank 4 on host-b {what}")


@pytest.mark.parametrize("code", [ExitCode.PEER_LOST, ExitCode.STOPPED])
def test_worker_that_ends_because_of_another_is_no_cause(code: int) -> None:
    assert departure_of(4, "host-b", code) is None


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({2}, True),
        ({2, ExitCode.PEER_LOST}, True),
        ({2, -PEER_LOST}, True),
        ({2, -signal.SIGTERM, ExitCode.STOPPED}, True),
        ({2, 1}, False),
        ({2, -signal.SIGKILL}, False),
        ({ExitCode.PEER_LOST}, False),
        (set(), False),
    ],
)
def test_request_is_refused_where_no_worker_says_otherwise(codes: set[int], expected: bool) -> None:
    assert is_refusal(codes) is expected
