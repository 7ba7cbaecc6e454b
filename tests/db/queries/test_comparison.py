"""Comparison of a group with its reference."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from db import queries
from db.queries.differences import is_equal_work
from tests.support.query_runs import PLAIN, group

ONE = group(PLAIN, (100.0, 102.0, 98.0))
TWO = group(replace(PLAIN, run_id="two", world_size=2, parallel="ddp"), (50.0, 51.0, 49.0))


def test_speedup_divides_the_medians_and_has_an_interval() -> None:
    comparison = queries.compare(TWO, ONE)
    assert comparison.differences == ()
    assert comparison.ratio is not None
    assert (comparison.ratio.kind, comparison.ratio.scaling) == ("speedup", "strong")
    assert comparison.ratio.value == pytest.approx(2.0)
    assert comparison.ratio.parallel_efficiency == pytest.approx(1.0)
    assert comparison.ratio.test is not None
    assert comparison.ratio.test.p_value == pytest.approx(0.1)
    assert comparison.ratio.interval is not None
    assert comparison.ratio.interval.low <= 2.0 <= comparison.ratio.interval.high


def test_unequal_work_gives_a_throughput_ratio() -> None:
    more = replace(TWO, setting=replace(TWO.setting, num_epochs=4.0))
    comparison = queries.compare(more, ONE)
    assert comparison.ratio is not None
    assert comparison.ratio.kind == "throughput_ratio"
    assert comparison.ratio.value == pytest.approx(2.0)
    assert [item.what for item in comparison.differences] == ["features x epochs"]


@pytest.mark.parametrize(
    "changed", [{"num_epochs": None}, {"dataset": "other"}, {"num_train_features": 999}, {"num_train_features": None}]
)
def test_work_is_equal_only_if_known_to_be(changed: dict[str, Any]) -> None:
    assert is_equal_work(ONE, TWO)
    assert not is_equal_work(ONE, replace(TWO, setting=replace(TWO.setting, **changed)))


def test_every_compared_difference_is_listed() -> None:
    other = replace(
        TWO,
        setting=replace(
            TWO.setting,
            provenance="imported",
            device_name="NVIDIA T4",
            global_batch_size=48,
            precision="fp16",
            model="bert-large-uncased",
            dataset="other",
        ),
        config={"learning_rate": 3e-5, "seed": 2},
        software=({"torch": "2.11.0"},),
    )
    differences = queries.compare(other, ONE).differences
    assert [item.what for item in differences] == [
        "provenance",
        "hardware",
        "global batch",
        "precision",
        "model",
        "data",
        "torch",
        "learning_rate",
    ]
    assert (differences[-1].reference, differences[-1].here) == ("4e-05", "3e-05")


def test_ratio_without_time_or_throughput_is_none() -> None:
    bare = replace(TWO, repeats=(replace(TWO.repeats[0], wall_clock_s=None, samples_per_s=None),))
    assert queries.compare(bare, ONE).ratio is None


def test_reference_is_the_one_device_group_of_the_same_provenance() -> None:
    reported = group(PLAIN, (779.0,), provenance="reported")
    ddp_one = group(replace(PLAIN, run_id="ddp", parallel="ddp"), (101.0,) * 9)
    groups = [TWO, ddp_one, reported, ONE]
    references = {comparison.group.key: comparison.reference for comparison in queries.compare_all(groups)}
    assert references[TWO.key] is ONE
    assert references[reported.key] is reported
    assert references[ONE.key] is ONE
    assert queries.compare_all([TWO])[0].reference is None


def limited(found: queries.Group, max_steps: int | None) -> queries.Group:
    """Return the group with another limit of its steps."""
    return replace(found, key=f"{found.key}-{max_steps}", config={**found.config, "max_steps": max_steps})


def test_reference_of_equal_work_is_preferred() -> None:
    ddp_one = limited(group(replace(PLAIN, run_id="ddp", parallel="ddp"), (101.0,)), 10)
    four, more = limited(ONE, 4), limited(replace(ONE, repeats=ONE.repeats[:1]), 7)
    groups = [more, four, limited(TWO, 10), ddp_one]
    references = {comparison.group.key: comparison.reference for comparison in queries.compare_all(groups)}
    assert references[groups[2].key] is ddp_one
    assert references[four.key] is four
    # Without equal work: no strategy, then the most repeats.
    assert queries.compare_all([limited(TWO, 20)], candidates=groups)[0].reference is four


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (limited(TWO, 10), "4 against 10 steps"),
        (limited(TWO, None), "4 against all steps"),
        (limited(replace(TWO, setting=replace(TWO.setting, global_batch_size=48)), 4), "24 against 48 features a step"),
        (
            limited(replace(TWO, setting=replace(TWO.setting, num_train_features=2000)), 4),
            "1,000 against 2,000 features",
        ),
        (limited(replace(TWO, setting=replace(TWO.setting, num_epochs=3.0)), 4), "2 against 3 epochs"),
        (limited(replace(TWO, setting=replace(TWO.setting, num_epochs=None)), 4), None),
        (TWO, None),
        (limited(TWO, 4), None),
    ],
)
def test_known_unequal_work_is_described(here: queries.Group, said: str | None) -> None:
    four = limited(ONE, 4)
    assert queries.compare(here, four).unequal_work == said
    assert said is None or not is_equal_work(here, four)


def test_null_setting_is_shown_as_not_set() -> None:
    here, there = (replace(TWO, config={"dropout": None}), replace(ONE, config={"dropout": 0}))
    (difference,) = queries.compare(here, there).differences
    assert (difference.what, difference.reference, difference.here) == ("dropout", "0", "not set")


def test_chosen_reference_applies_to_its_recipe_only() -> None:
    elsewhere = group(replace(PLAIN, run_id="demo", recipe="demo"), (10.0,))
    comparisons = queries.compare_all([ONE, TWO, elsewhere], (TWO.key,))
    assert [comparison.reference for comparison in comparisons] == [TWO, TWO, elsewhere]
    assert comparisons[0].ratio is not None
    assert comparisons[0].ratio.value == pytest.approx(0.5)


def test_distinguishing_settings_are_those_that_differ_under_one_name(session: Session) -> None:
    found = queries.speedup_groups(session)[0]
    common = {"epochs": 2, "seed": 1}
    groups = [
        replace(found, key="a", config={**common, "dropout": None, "max_steps": 10}),
        replace(found, key="b", config={**common, "dropout": 0, "max_steps": 10, "seed": 2}),
        replace(found, key="c", config={**common, "max_steps": 4}),
        replace(found, key="elsewhere", config={"max_steps": 99}),
    ]
    assert queries.distinguishing_settings(groups, lambda group: group.key == "elsewhere") == {
        "a": ("dropout not set", "max_steps 10"),
        "b": ("dropout 0", "max_steps 10"),
        "c": ("max_steps 4",),
        "elsewhere": (),
    }
