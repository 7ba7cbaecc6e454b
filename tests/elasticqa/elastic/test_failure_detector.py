"""What counts as the cause of several signs, and when it is settled."""

from elasticqa.elastic.failure_detector import Suspicion, Verdict
from elasticqa.elastic.failures import departure


def sign(rank: int, kind: str) -> Verdict:
    return Verdict(rank, departure(kind, f"rank {rank} on a", "x"))


def test_death_outweighs_the_errors_that_it_gives_others() -> None:
    suspicion = Suspicion()
    assert suspicion.add(sign(2, "failed"), now=10.0, wait_s=0.5)
    assert not suspicion.add(sign(0, "failed"), now=10.1, wait_s=0.5)
    assert suspicion.add(sign(1, "gone"), now=10.2, wait_s=0.5)
    assert not suspicion.add(sign(3, "gone"), now=10.3, wait_s=0.5)
    assert not suspicion.is_due(10.4)
    assert suspicion.is_due(10.5)
    assert suspicion.cause is not None
    assert suspicion.cause.rank == 1


def test_what_is_settled_counts_at_once() -> None:
    suspicion = Suspicion()
    assert not suspicion.is_due(10.0)
    suspicion.add(sign(1, "gone"), now=10.0, wait_s=5.0)
    suspicion.settle(sign(2, "failed"))
    assert suspicion.is_due(10.0)
    assert suspicion.cause is not None
    assert suspicion.cause.rank == 2
