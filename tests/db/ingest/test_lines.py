import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.engine import create_engine_for
from db.ingest.update import ingest
from db.models import Event
from tests.support.journals import START, attempt_line, end_line, journal_path, numbered, step_line
from tests.support.rows import of_runs, the_run


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"{", "is not JSON"),
        (b'{"n": 2, "t": NaN, "kind": "step"}', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"n": 2, "t": 1.0, "kind": "event", "data": ' + b'{"a":' * 99 + b"1" + b"}" * 100, "nested more"),
        (b"[1, 2]", "is not an object"),
        (b'{"n": 2, "t": 1.0}', "has no kind"),
        (b'{"n": 2, "kind": "step"}', "has no t"),
        (b'{"n": 2, "t": "now", "kind": "step"}', "has t='now'"),
        (b'{"n": 2, "t": 1e300, "kind": "step"}', "has t=1e"),
        (b'{"n": 2, "t": 1.0, "kind": "event", "name": "a\\u0000b"}', "NUL"),
        (b'{"n": 2, "t": 1.0, "kind": "event", "name": "\\ud800"}', "not Unicode"),
        (b'{"n": 2, "t": 1.0, "kind": "event", "name": "x", "data": []}', "has data=[]"),
        (b'{"n": 2, "t": 1.0, "kind": "attempt"}', "second attempt"),
        (numbered([step_line(1, step=2**31)], 2).strip(), "has step=2147483648"),
        (numbered([step_line(1, step=True)], 2).strip(), "has step=True"),
        (numbered([step_line(1, step=None)], 2).strip(), "has no step"),
        (numbered([step_line(1, loss="low")], 2).strip(), "has loss='low'"),
        (numbered([step_line(1, is_warmup=1)], 2).strip(), "has is_warmup=1"),
        (numbered([step_line(1, loss=10**400)], 2).strip(), "has loss=1000"),
        (numbered([step_line(1)], 2).strip().replace(b"3.0,", b"1e999,"), "has loss=inf"),
        (numbered([end_line(1, status="won")], 2).strip(), "has status='won'"),
        (numbered([{"kind": "hosts", "hosts": [1]}], 2).strip(), "has hosts=[1]"),
        (numbered([{"kind": "hosts", "hosts": [{"node_rank": "x"}]}], 2).strip(), "has hosts=[{'node_rank': 'x'}]"),
    ],
)
def test_damaged_line_is_reported_and_skipped(engine: Engine, runs: Path, damage: bytes, message: str) -> None:
    path = journal_path(runs, "a")
    path.write_bytes(numbered([attempt_line("a")]) + damage + b"\n" + numbered([step_line(1)], first=3))
    (problem,) = of_runs(ingest(engine, runs))
    assert problem.startswith("a/journal/attempt-0001-node-00000.jsonl:2 ")
    assert message in problem
    assert the_run(engine, "a").step == 1


def test_escaped_backslash_before_u0000_is_plain_text(engine: Engine, runs: Path) -> None:
    line = {"kind": "event", "name": "path\\u0000 Ü \U0001f600", "data": {}}
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), line, step_line(1)]))
    assert ingest(engine, runs).problems == []
    with Session(engine) as session:
        event = session.scalars(select(Event).where(Event.run_id == "a")).one()
    assert event.name == "path\\u0000 Ü \U0001f600"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    junk=st.lists(
        st.dictionaries(
            st.sampled_from(["n", "t", "kind", "step", "loss", "hosts", "status", "data", "gpus", "name", "summary"]),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text()
                | st.sampled_from(["step", "end", "hosts", "setup", "event", "system", "profile", "finished"]),
                lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
                max_leaves=4,
            ),
        ),
        max_size=8,
    )
)
def test_any_object_on_a_line_is_read_or_reported(
    migrated_database: Path, tmp_path_factory: pytest.TempPathFactory, junk: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    text = "".join(json.dumps({"n": number, "t": START, **line}) + "\n" for number, line in enumerate(junk, 2))
    journal_path(folder, "a").write_bytes(
        numbered([attempt_line("a")]) + text.encode() + numbered([step_line(7)], first=len(junk) + 2)
    )
    engine = create_engine_for(f"sqlite:///{shutil.copy(migrated_database, folder)}")
    ingest(engine, folder)
    assert the_run(engine, "a").num_attempts == 1
    engine.dispose()
