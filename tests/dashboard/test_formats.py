"""How values read at the edges."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.text import formats


@pytest.mark.parametrize(
    "show",
    [formats.duration, formats.size, formats.rate, formats.fixed, formats.p_value, formats.count, formats.moment],
)
def test_unknown_values_are_a_dash(show: object) -> None:
    assert callable(show)
    assert show(None) == formats.UNKNOWN


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 ms"), (59.994, "60 s"), (59.996, "1 min"), (3599.7, "1 h"), (86_400, "1 d"), (90_000, "1 d 1 h")],
)
def test_durations_carry_over_at_their_units(seconds: float, shown: str) -> None:
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize("unix_s", [-1.0, 1e15, 253_402_300_800.0])
def test_time_without_a_date_is_unknown(unix_s: float) -> None:
    assert formats.moment(unix_s) == formats.UNKNOWN
    assert formats.machine_moment(unix_s) == ""


@settings(deadline=None)
@given(st.floats(0, 1e18), st.floats(0, 1e18))
def test_every_span_of_time_can_be_shown(first: float, second: float) -> None:
    assert formats.duration(first)
    assert formats.ago(first, second)


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_any_recorded_value_can_be_shown(anything: object) -> None:
    assert isinstance(formats.fact(anything, "some_bytes"), str)
    assert isinstance(formats.fact(anything, "some_at"), str)
    assert isinstance(formats.fact(anything, "some_s"), str)
    assert isinstance(formats.fact(anything, "num_some"), str)
