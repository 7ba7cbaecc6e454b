"""Figures of profiler traces and of the timeline."""

from dataclasses import replace

from dashboard.figures.profile import parts_figure
from dashboard.figures.timeline import timeline_figure
from db.queries import AttemptSpan, CheckpointRow, EvaluationRow, TimePart

GPU = (TimePart("compute", 0.75), TimePart("idle, other", 0.25))
CPU = (TimePart("host in operators", 0.5), TimePart("host outside operators", 0.5))


def stretch(attempt: int, start: float, end: float, **changes: object) -> AttemptSpan:
    fields = {
        "attempt": attempt,
        "world_size": 4,
        "started_at": start,
        "ended_at": end,
        "status": "finished",
        "reason": None,
        "first_step": 1,
        "last_step": 50,
        "num_redone": 0,
        "lost_since": None,
    }
    return AttemptSpan(**{**fields, **changes})  # type: ignore[arg-type]  # the fields of the test are of any type


def checkpoint(attempt: int, t: float) -> CheckpointRow:
    return CheckpointRow(attempt, 100, t, "checkpoints/x", None, None, None, "<b>interval")


def evaluation(attempt: int, t: float) -> EvaluationRow:
    return EvaluationRow(attempt, 100, t, "dev", 80.0, None, None, 10, 12, 1.0, 7, None)


def test_bars_of_traces_with_and_without_devices_stand_side_by_side() -> None:
    figure = parts_figure([("gpu", GPU), ("<cpu>", CPU)])
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name) == ["compute", "idle, other", "host in operators", "host outside operators"]
    assert (list(by_name["compute"].y), list(by_name["compute"].x)) == ([0], [75.0])
    assert (list(by_name["host in operators"].y), list(by_name["host in operators"].x)) == ([1], [50.0])
    assert list(figure.layout.yaxis.ticktext) == ["gpu", "&lt;cpu&gt;"]
    assert figure.layout.barmode == "stack"
    assert figure.layout.xaxis.title.text.endswith("(%)")


def test_trace_without_parts_has_an_empty_row() -> None:
    figure = parts_figure([("gpu", GPU), ("nothing", ())])
    assert list(figure.layout.yaxis.ticktext) == ["gpu", "nothing"]
    assert all(list(trace.y) == [0] for trace in figure.data)


def test_timeline_falls_to_no_ranks_between_attempts() -> None:
    figure = timeline_figure([stretch(1, 600.0, 660.0), stretch(2, 720.0, 900.0, world_size=2)], [], [])
    ranks = figure.data[0]
    assert list(ranks.x) == [0, 0, 1, 1, 2, 2, 5, 5]
    assert list(ranks.y) == [0, 4, 4, 0, 0, 2, 2, 0]
    assert [trace.name for trace in figure.data] == ["ranks", "end of an attempt"]


def test_timeline_says_why_an_attempt_ended_and_what_it_lost() -> None:
    killed = stretch(1, 0.0, 600.0, status="lost", reason="<b>", num_redone=30, lost_since=480.0)
    figure = timeline_figure([killed, stretch(2, 660.0, 900.0)], [], [])
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["lost and redone"].x) == [8, 10, None]
    ends = by_name["end of an attempt"]
    assert ends.hovertext[0] == "attempt 1: lost<br>&lt;b&gt;<br>steps 1 to 50<br>30 of these lost and redone"
    assert list(ends.text) == ["lost", "finished"]
    assert (ends.marker.symbol[0], ends.marker.symbol[1]) == ("x", "circle")


def test_timeline_marks_checkpoints_and_evaluations_of_the_attempts_that_it_shows() -> None:
    rows = [stretch(2, 0.0, 600.0)]
    figure = timeline_figure(rows, [checkpoint(2, 60.0), checkpoint(1, 30.0)], [evaluation(2, 120.0)])
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["checkpoint"].x) == [1]
    assert by_name["checkpoint"].text[0] == "step 100, &lt;b&gt;interval"
    assert list(by_name["evaluation"].x) == [2]
    assert by_name["evaluation"].text[0] == "step 100, F1 unknown"
    assert by_name["evaluation"].y[0] != by_name["checkpoint"].y[0]


def test_checkpoint_on_the_timeline_tells_its_size_and_time() -> None:
    saved = replace(checkpoint(1, 60.0), bytes=3 * 2**30, save_time_s=1.5, reason="interval")
    figure = timeline_figure([stretch(1, 0.0, 600.0)], [saved], [])
    assert figure.data[1].text[0] == "step 100, interval, 3 GiB, saved in 1.5 s"


def test_mark_near_the_left_edge_has_its_word_on_the_right() -> None:
    figure = timeline_figure([stretch(1, 0.0, 10.0), stretch(2, 60.0, 600.0)], [], [])
    assert list(figure.data[-1].textposition) == ["top right", "top left"]


def test_timeline_of_many_attempts_has_no_names_at_the_marks() -> None:
    figure = timeline_figure([stretch(number, number * 10.0, number * 10.0 + 5) for number in range(1, 20)], [], [])
    assert figure.data[-1].mode == "markers"
    assert timeline_figure([], [], []).data == ()
