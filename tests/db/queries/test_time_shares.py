"""Time shares of runs with unknown times."""

from sqlalchemy.orm import Session

from db import queries
from tests.support.query_runs import NOW, PLAIN


def test_results_without_start_and_end_have_no_time_shares(session: Session) -> None:
    def shares_of(run_id: str) -> list[queries.TimeShare]:
        return queries.time_shares(session, run_id, queries.attempts_of(session, run_id, NOW))

    assert queries.evaluations_of(session, "reported-squad")[0].eval_time_s is not None
    assert shares_of("reported-squad") == []
    assert "steps" in {share.what for share in shares_of(PLAIN.run_id)}
