"""Signals that ask a process to stop, before its first step and in the training loop."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from elasticqa.elastic.signals import STOP_SIGNALS, StopRequest
from tests.support.processes import piped, run_python


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    request = StopRequest()
    request.install()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)


def test_no_stop_is_requested_before_a_signal(stop: StopRequest) -> None:
    assert stop.received is None


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_stop_signal_is_received(number: signal.Signals, stop: StopRequest) -> None:
    signal.raise_signal(number)
    assert stop.received is number


def test_first_signal_counts(stop: StopRequest) -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert stop.received is signal.SIGUSR1


EARLY = """
import os, signal, sys, threading, time
from elasticqa.elastic.signals import EarlyExit, StopRequest
stop = StopRequest()
stop.install()
if sys.argv[1] == "before":
    signal.raise_signal(signal.SIGTERM)
early_exit = EarlyExit(lambda number: os._exit(40 + number))
early_exit.start(stop)
if sys.argv[1] == "loop":
    early_exit.cancel()
    early_exit.cancel()
print("ready", flush=True)
if sys.argv[1] == "loop":
    while stop.received is None:
        time.sleep(0.05)
    print("asked", flush=True)
    while stop.received is signal.SIGINT:
        time.sleep(0.05)
    sys.exit(7)
# Like a main thread in native code: no handler runs.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Event().wait()
"""


@pytest.mark.parametrize(("phase", "status"), [("early", 40 + signal.SIGTERM), ("loop", 7)])
def test_process_ends_at_once_before_its_first_step_and_by_itself_in_the_loop(phase: str, status: int) -> None:
    with piped(sys.executable, "-c", EARLY, phase) as (process, output):
        assert output.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == status


def test_signal_received_before_the_listener_starts_ends_the_process() -> None:
    assert run_python("-c", EARLY, "before").returncode == 40 + signal.SIGTERM


def test_second_ctrl_c_ends_the_process() -> None:
    with piped(sys.executable, "-c", EARLY, "loop") as (process, output):
        for line in ("ready\n", "asked\n"):
            assert output.readline() == line
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


CHILD = """
import os, signal, sys, threading
from elasticqa.elastic.signals import stop_with_parent
signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), os._exit(0)))
stop_with_parent(int(sys.argv[1]))
print("ready", flush=True)
while True:
    threading.Event().wait(0.05)
"""
PARENT = """
import os, subprocess, sys
parent = os.getpid() if sys.argv[2] == "own" else 1 << 22
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(parent)]).wait()
"""


@pytest.mark.parametrize("parent", ["own", "gone"])
def test_child_of_a_dead_parent_is_asked_to_stop(parent: str) -> None:
    with piped(sys.executable, "-c", PARENT, CHILD, parent) as (process, output):
        if parent == "own":
            assert output.readline() == "ready\n"
            process.kill()
        assert output.read() == "asked\n"
