"""Health check between real ranks: which rank is the cause, and which ranks end."""

import queue

import pytest

from elasticqa.config.environment import DEFAULT_PEER_TIMEOUT_S
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.failure_detector import Detection
from elasticqa.elastic.health_check import HealthCheck
from elasticqa.errors import ConfigError
from tests.support.ranks import run_on_ranks

PATIENCE_S = 120.0


def test_single_process_fails_without_a_decision() -> None:
    decisions: queue.Queue[Detection] = queue.Queue()
    with HealthCheck(Topology.from_env({}), DEFAULT_PEER_TIMEOUT_S, decisions.put) as health_check:
        health_check.report_error(ValueError("x"), is_agreed=False)
        health_check.close()
    assert decisions.empty()


def fail(_: Topology, health_check: HealthCheck) -> None:
    health_check.report_error(KeyError("a"), is_agreed=False)


def fail_as_agreed(_: Topology, health_check: HealthCheck) -> None:
    health_check.report_error(ConfigError("c\nd"), is_agreed=True)


def leave(_: Topology, health_check: HealthCheck) -> None:
    health_check.report_leave("leaves now")


def be_silent(topology: Topology, health_check: HealthCheck) -> None:
    with health_check._lock:  # as if the process were stopped
        topology.barrier()


def leave_and_close(topology: Topology, health_check: HealthCheck) -> None:
    leave(topology, health_check)
    health_check.close()


CASES = (
    (1, fail), (None, fail_as_agreed), (1, fail_as_agreed), (2, leave), (0, leave_and_close), (1, be_silent),
    (None, None),
)  # fmt: skip
"""The rank that does something (None: all of them), and what it does."""


def decisions_of_all_cases(topology: Topology) -> list[object]:
    """Return rank, kind and sentence of this rank's decision in each case; None without one."""
    found: list[object] = []
    for rank, action in CASES:
        decisions: queue.Queue[Detection] = queue.Queue()
        decision: object = None
        with HealthCheck(topology, 10.0, decisions.put) as health_check:
            if rank not in (None, topology.rank):
                detection = decisions.get(timeout=PATIENCE_S)
                decision = detection.rank, detection.cause.kind, detection.cause.what
                if action is be_silent:
                    topology.barrier()
            elif action is not None:
                action(topology, health_check)
            topology.barrier()
        found.append(decision)
    return found


@pytest.mark.slow
def test_all_ranks_decide_on_the_same_cause() -> None:
    first, second, third = run_on_ranks(3, decisions_of_all_cases)
    fails, all_fail, one_fails_alone, leaves, goes, is_silent, nothing = zip(first, second, third, strict=True)
    assert fails == ((1, "failed", "failed: KeyError: 'a'"), None, (1, "failed", "failed: KeyError: 'a'"))
    assert all_fail == nothing == (None, None, None)
    assert one_fails_alone == ((1, "failed", "failed: ConfigError: c"), None, (1, "failed", "failed: ConfigError: c"))
    assert leaves == ((2, "changed", "leaves now"), (2, "changed", "leaves now"), None)
    assert goes == (None, (0, "changed", "leaves now"), (0, "changed", "leaves now"))
    assert [decision and decision[:2] for decision in is_silent] == [(1, "silent"), None, (1, "silent")]
