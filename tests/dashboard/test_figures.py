"""Figures: traces, units, and escaped text."""

import json
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.figures import comparison, machine, run
from dashboard.figures.style import plain
from db.queries import EvaluationRow, Group, LossPoint, SystemRow, ThroughputPoint, TimeShare
from tests.support import query_runs


def loss_point(attempt: int, step: int, loss: float, width: int = 1) -> LossPoint:
    return LossPoint(attempt, step, step + width - 1, loss, loss - 0.1, loss + 0.1, 1e-5, 2.0)


def throughput_point(step: int, samples_per_s: float, *, is_warmup: bool = False, width: int = 1) -> ThroughputPoint:
    return ThroughputPoint(1, step, step + width - 1, is_warmup, samples_per_s, 1e4, 0.02, 0.05, 0.001, 2060.0, 2000.0)


def sample(attempt: int, node: int, t: float, gpus: list[Any]) -> SystemRow:
    return SystemRow(attempt, node, t, 50.0, 2**31, gpus)


def group(parallel: str, times: tuple[float, ...], provenance: str = "measured", name: str = "run") -> Group:
    spec = replace(query_runs.PLAIN, parallel=parallel, world_size=2, device_name="NVIDIA H100", name=name)
    return replace(query_runs.group(spec, times, provenance=provenance), key=parallel)


def names(figure: go.Figure) -> list[str]:
    return [trace.name for trace in figure.data]


def test_loss_has_a_line_for_each_attempt_and_a_faint_one_for_redone_steps() -> None:
    kept = [loss_point(1, 1, 3.0), loss_point(1, 2, 2.0), loss_point(2, 3, 1.0), loss_point(2, 4, 0.9)]
    figure = run.loss_figure(kept, [loss_point(1, 3, 1.5), loss_point(1, 4, 1.4)])
    assert names(figure) == ["attempt 1", "attempt 2", "redone steps"]
    assert list(figure.data[1].x) == [3, 4]
    assert list(figure.data[1].y) == [1.0, 0.9]
    assert figure.data[2].line.dash == "dot"
    assert len({trace.line.color for trace in figure.data}) == 3


def test_thinned_loss_has_a_band_between_its_extremes() -> None:
    points = [loss_point(1, 1, 3.0, width=10), loss_point(1, 11, 2.0, width=10)]
    low, high, line = run.loss_figure(points, []).data
    assert (list(low.y), list(high.y)) == ([2.9, 1.9], [3.1, 2.1])
    assert high.fill == "tonexty"
    assert list(line.x) == [5.5, 15.5]


def test_optimizer_has_an_axis_for_each_quantity() -> None:
    figure = run.optimizer_figure([loss_point(1, 1, 1.0), loss_point(1, 2, 1.0)])
    assert names(figure) == ["gradient norm", "learning rate"]
    assert (figure.data[0].yaxis, figure.data[1].yaxis) == ("y2", None)


def test_throughput_separates_warmup_and_marks_the_throughput_of_the_run() -> None:
    points = [throughput_point(1, 10.0, is_warmup=True), throughput_point(2, 100.0), throughput_point(3, 110.0)]
    figure = run.throughput_figure(points, 105.0)
    assert names(figure) == ["attempt 1", "warm-up, not counted"]
    assert list(figure.data[0].y) == [100.0, 110.0]
    assert list(figure.data[1].y) == [10.0]
    assert figure.layout.shapes[0].y0 == 105.0
    assert not run.throughput_figure(points, None).layout.shapes


def test_step_time_is_in_milliseconds_and_shows_the_slowest_when_thinned() -> None:
    figure = run.step_time_figure([throughput_point(1, 1.0), throughput_point(2, 1.0)])
    assert names(figure) == ["step", "data"]
    assert list(figure.data[0].y) == [20.0, 20.0]
    thinned = run.step_time_figure([throughput_point(1, 1.0, width=5), throughput_point(6, 1.0, width=5)])
    assert names(thinned) == ["step", "data", "slowest step"]


def test_evaluation_has_a_pair_of_lines_for_each_split() -> None:
    def row(step: int, split: str) -> EvaluationRow:
        return EvaluationRow(1, step, 0.0, split, 80.0, 88.0, None, 10, 12, 1.0, step, None)

    assert names(run.evaluation_figure([row(1, "dev")])) == ["F1", "EM"]
    figure = run.evaluation_figure([row(1, "dev"), row(1, "<b>xquad</b>")])
    assert names(figure)[:2] == ["F1 (&lt;b&gt;xquad&lt;/b&gt;)", "EM (&lt;b&gt;xquad&lt;/b&gt;)"]


def test_many_attempts_are_not_named_and_redone_steps_once() -> None:
    kept = [loss_point(number, number, 1.0) for number in range(1, run.MAX_NAMED + 2)]
    figure = run.loss_figure(kept, [loss_point(1, 2, 1.0), loss_point(2, 3, 1.0)])
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == ["redone steps"]
    named = run.loss_figure(kept[1:], [])
    assert all(trace.showlegend for trace in named.data)


def test_tokens_are_those_of_the_fullest_and_the_mean_rank() -> None:
    points = [throughput_point(1, 1.0), replace(throughput_point(2, 1.0), max_rank_tokens=None)]
    figure = run.tokens_figure(points)
    assert [(trace.name, list(trace.y)) for trace in figure.data] == [
        ("fullest rank", [2060.0]),
        ("mean rank", [2000.0]),
    ]


@pytest.mark.parametrize(("hours", "unit", "last"), [(0.01, "s", 36.0), (1, "min", 60.0), (30, "h", 30.0)])
def test_wall_clock_is_in_the_unit_that_suits_it(hours: float, unit: str, last: float) -> None:
    figure = comparison.wall_clock_figure([group("ddp", (1.0, 3600 * hours))])
    assert figure.layout.xaxis.title.text == f"wall clock ({unit})"
    assert figure.data[0].x[-1] == pytest.approx(last)


def test_time_is_one_bar_in_minutes() -> None:
    figure = machine.time_figure([TimeShare("setup", 30.0), TimeShare("steps", 90.0)])
    assert [(trace.name, list(trace.x)) for trace in figure.data] == [("setup", [0.5]), ("steps", [1.5])]
    assert "75.0%" in figure.data[1].hovertemplate


def test_use_is_a_mean_over_gpus_with_a_gap_between_attempts() -> None:
    gpus = [{"utilization_percent": 80.0}, {"utilization_percent": 100.0}]
    samples = [sample(1, 0, 0.0, gpus), sample(2, 0, 600.0, gpus)]
    figure = machine.utilization_figure(samples)
    assert names(figure) == ["CPU, node 0", "GPU, node 0"]
    assert list(figure.data[1].y) == [90.0, None, 90.0, None]
    assert list(figure.data[1].x) == [0.0, None, 10.0, None]


def test_memory_leaves_out_missing_values() -> None:
    samples = [sample(1, node, 0.0, ["no object", {"memory_bytes": "many"}]) for node in (0, 1)]
    figure = machine.memory_figure(samples)
    assert names(figure) == ["host, node 0", "host, node 1"]
    assert figure.data[0].y[0] == 2.0


def test_wall_clocks_are_dots_with_a_bar_at_the_median() -> None:
    figure = comparison.wall_clock_figure([group("ddp", (60.0, 120.0, 240.0)), group("fsdp", (60.0,))])
    dots, middle, single = figure.data
    assert (list(dots.x), list(middle.x), list(single.x)) == ([1.0, 2.0, 4.0], [2.0], [1.0])
    assert list(figure.layout.yaxis.ticktext) == ["DDP, 2 GPUs", "FSDP, 2 GPUs"]


def test_reported_groups_are_hollow_and_named_so() -> None:
    figure = comparison.wall_clock_figure([group("ddp", (60.0,)), group("ddp", (60.0,), "reported")])
    assert [trace.marker.symbol for trace in figure.data] == ["circle", "circle-open"]
    assert figure.layout.yaxis.ticktext[1] == "DDP, 2 GPUs (reported)"


def test_throughput_of_groups_names_the_hardware() -> None:
    figure = comparison.throughput_figure([group("ddp", (2.0, 1.0))])
    assert list(figure.data[0].x) == [1000.0, 2000.0]
    assert figure.layout.yaxis.ticktext[0] == "DDP, 2 GPUs, H100"


def test_groups_of_one_label_show_their_different_settings() -> None:
    groups = [
        replace(group("ddp", (60.0,)), key=str(steps), config={"max_steps": steps, "model": "bert"})
        for steps in (4, 10)
    ]
    labels = comparison.wall_clock_figure(groups).layout.yaxis.ticktext
    assert list(labels) == ["DDP, 2 GPUs<br>max_steps 4", "DDP, 2 GPUs<br>max_steps 10"]


def test_one_point_gets_an_axis_from_zero() -> None:
    rows = [EvaluationRow(1, 7378, 0.0, "dev", 81.0, 88.0, None, 10, 12, 1.0, 1, None)]
    layout = run.evaluation_figure(rows).layout
    assert list(layout.xaxis.range) == pytest.approx([0, 1.05 * 7378])
    assert layout.yaxis.range is None
    layout = run.optimizer_figure([LossPoint(1, 3, 3, 1.0, 1.0, 1.0, 0.0, 2.0)]).layout
    assert list(layout.yaxis.range) == [0, 1]
    assert list(layout.yaxis2.range) == pytest.approx([0, 2.1])
    assert run.loss_figure([loss_point(1, 1, -1.0)], []).layout.yaxis.range == pytest.approx((-1.05, 0))
    two = run.loss_figure([loss_point(1, 1, 3.0), loss_point(1, 2, 2.0)], []).layout
    assert (two.xaxis.range, two.yaxis.range) == (None, None)
    bars = machine.time_figure([TimeShare("setup", 30.0), TimeShare("steps", 30.0)]).layout
    assert bars.xaxis.range is None


def test_names_in_figures_are_no_markup() -> None:
    figure = comparison.wall_clock_figure([group("ddp", (60.0,), name='<a href="https://example.org">x</a>')])
    assert figure.data[0].text[0] == '&lt;a href="https://example.org"&gt;x&lt;/a&gt;'


@given(st.text())
def test_plain_text_has_no_tags_and_is_short(text: str) -> None:
    shown = plain(text)
    assert "<" not in shown
    assert len(shown) <= 60 * len("&amp;")


UNITS = {
    "loss": ("optimizer step", "loss (global batch)"),
    "throughput": ("optimizer step", "features/s (all ranks)"),
    "step_time": ("optimizer step", "time of a step (ms, rank 0)"),
    "evaluation": ("optimizer step", "score (%)"),
    "utilization": ("time since the first sample (s)", "use (%)"),
    "memory": ("time since the first sample (s)", "memory in use (GiB)"),
    "tokens": ("optimizer step", "real tokens of a step"),
}


@pytest.mark.parametrize("chart", UNITS)
def test_axes_name_their_units(chart: str) -> None:
    figures = {
        "loss": lambda: run.loss_figure([], []),
        "throughput": lambda: run.throughput_figure([], None),
        "step_time": lambda: run.step_time_figure([]),
        "evaluation": lambda: run.evaluation_figure([]),
        "utilization": lambda: machine.utilization_figure([]),
        "memory": lambda: machine.memory_figure([]),
        "tokens": lambda: run.tokens_figure([]),
    }
    layout = figures[chart]().layout
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == UNITS[chart]


def test_figures_are_sent_without_plotlys_template() -> None:
    figure = json.loads(run.loss_figure([loss_point(1, 1, 1.0)], []).to_json())
    assert "layout" not in figure["layout"]["template"]
    assert len(json.dumps(figure)) < 2_000
