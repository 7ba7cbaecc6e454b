"""A signal is a request that the loop reads; it ends nothing by itself."""

import os
import signal
from collections.abc import Iterator

import pytest

from elasticqa.signals import STOP_SIGNALS, StopRequest


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    request = StopRequest()
    request.install()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nothing_is_asked_before_a_signal(stop: StopRequest) -> None:
    assert stop.received is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_is_remembered(number: signal.Signals, stop: StopRequest) -> None:
    signal.raise_signal(number)
    assert stop.received is number


def test_repeats_change_nothing(stop: StopRequest) -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert stop.received is signal.SIGUSR1
