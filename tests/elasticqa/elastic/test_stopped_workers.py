"""Detection of stopped processes: real ones, by the test's own clock."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from elasticqa.elastic.stopped_workers import StoppedWorkerDetector

LIMIT_S = 10.0
WAITS = "import sys; print(flush=True); sys.stdin.read()"
WORKS = "print(flush=True)\nwhile True: pass"


@pytest.fixture
def start() -> Iterator[Callable[[str], psutil.Process]]:
    """Return a function that starts a process and returns once it waits or works."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> psutil.Process:
        command = [sys.executable, "-c", code]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        output = processes[-1].stdout
        assert output is not None
        output.readline()
        return psutil.Process(processes[-1].pid)

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def stop(process: psutil.Process) -> None:
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:
        pass


def poll(detector: StoppedWorkerDetector, process: psutil.Process, seconds: range) -> list[dict[int, float]]:
    return [found for now in seconds if (found := detector.find([process.pid], now))]


def test_stopped_process_is_reported_once_with_its_seconds(start: Callable[[str], psutil.Process]) -> None:
    process = start(WAITS)
    stop(process)
    assert poll(StoppedWorkerDetector(LIMIT_S), process, range(100, 120)) == [{process.pid: 11.0}]


@pytest.mark.parametrize("code", [WAITS, WORKS])
def test_process_that_waits_or_works_is_never_reported(code: str, start: Callable[[str], psutil.Process]) -> None:
    assert poll(StoppedWorkerDetector(LIMIT_S), start(code), range(100, 200)) == []


def test_process_that_ran_between_two_polls_was_not_stopped(start: Callable[[str], psutil.Process]) -> None:
    process, detector = start(WORKS), StoppedWorkerDetector(LIMIT_S)
    stop(process)
    assert poll(detector, process, range(100, 108)) == []
    used = process.cpu_times().user
    process.send_signal(signal.SIGCONT)
    while process.cpu_times().user == used:
        pass
    stop(process)
    assert poll(detector, process, range(108, 130)) == [{process.pid: 11.0}]
    assert detector.find([process.pid], 130) == {}


def test_time_without_polls_does_not_count(start: Callable[[str], psutil.Process]) -> None:
    process, detector = start(WAITS), StoppedWorkerDetector(LIMIT_S)
    stop(process)
    assert poll(detector, process, range(100, 105)) == []
    assert poll(detector, process, range(1000, 1011)) == []
    assert detector.find([process.pid], 1011) == {process.pid: 11.0}


def test_ended_process_is_not_reported(start: Callable[[str], psutil.Process]) -> None:
    process, detector = start(WAITS), StoppedWorkerDetector(LIMIT_S)
    stop(process)
    assert poll(detector, process, range(100, 105)) == []
    process.kill()
    assert poll(detector, process, range(105, 120)) == []
