"""Ranks that watch each other: who is the cause, and who goes on."""

import queue

import pytest

from elasticqa.distributed.topology import Topology
from elasticqa.elastic.failure_detector import SILENCE_S, Verdict, silence_s
from elasticqa.elastic.health_check import Watch
from elasticqa.errors import ConfigError
from tests.support.ranks import run_on_ranks

PATIENCE_S = 120.0


@pytest.mark.parametrize("text", ["", "0", "4", "-5", "1.5", "soon", "²"])
def test_time_that_is_no_whole_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ELASTICQA_PEER_TIMEOUT_S="):
        silence_s(text)


def test_time_is_that_of_the_variable_or_the_default() -> None:
    assert silence_s("7") == 7
    assert silence_s(None) == SILENCE_S


def test_process_that_is_alone_fails_without_asking_anybody() -> None:
    told: queue.Queue[Verdict] = queue.Queue()
    with Watch(Topology.from_env({}), SILENCE_S, told.put) as watch:
        watch.failed(ValueError("x"), is_agreed=False)
        watch.close()
    assert told.empty()


def told_of(verdicts: "queue.Queue[Verdict]") -> tuple[int, str, str]:
    """Return rank, kind and sentence of the verdict that comes."""
    verdict = verdicts.get(timeout=PATIENCE_S)
    return verdict.rank, verdict.departure.kind, verdict.departure.what


def fails(_: Topology, watch: Watch) -> None:
    watch.failed(KeyError("a"), is_agreed=False)


def fails_as_all(_: Topology, watch: Watch) -> None:
    watch.failed(ConfigError("c\nd"), is_agreed=True)


def leaves(_: Topology, watch: Watch) -> None:
    watch.leaves("leaves now")


def is_silent(topology: Topology, watch: Watch) -> None:
    with watch._lock:  # as if the process were stopped
        topology.barrier()


def goes(topology: Topology, watch: Watch) -> None:
    leaves(topology, watch)
    watch.close()


CASES = ((1, fails), (None, fails_as_all), (1, fails_as_all), (2, leaves), (0, goes), (1, is_silent), (None, None))
"""The rank that does something (None: all of them), and what it does."""


def watches(topology: Topology) -> list[object]:
    """Return what this rank was told in each of the cases, one after the other."""
    found: list[object] = []
    for rank, deed in CASES:
        verdicts: queue.Queue[Verdict] = queue.Queue()
        told: object = None
        with Watch(topology, 10.0, verdicts.put) as watch:
            if rank not in (None, topology.rank):
                told = told_of(verdicts)
                if deed is is_silent:
                    topology.barrier()
            elif deed is not None:
                deed(topology, watch)
            topology.barrier()
        found.append(told)
    return found


@pytest.mark.slow
def test_ranks_learn_who_is_the_cause() -> None:
    first, second, third = run_on_ranks(3, watches)
    fails, all_fail, one_fails_alone, leaves, goes, is_silent, nothing = zip(first, second, third, strict=True)
    assert fails == ((1, "failed", "failed: KeyError: 'a'"), None, (1, "failed", "failed: KeyError: 'a'"))
    assert all_fail == nothing == (None, None, None)
    assert one_fails_alone == ((1, "failed", "failed: ConfigError: c"), None, (1, "failed", "failed: ConfigError: c"))
    assert leaves == ((2, "changed", "leaves now"), (2, "changed", "leaves now"), None)
    assert goes == (None, (0, "changed", "leaves now"), (0, "changed", "leaves now"))
    assert [told and told[:2] for told in is_silent] == [(1, "silent"), None, (1, "silent")]
