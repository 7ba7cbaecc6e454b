"""torchrun as a scheduler needs it: asked to stop is not failed, and a lost peer is noticed at once."""

import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.run import get_args_parser
from torch.distributed.run import main as torchrun

SHUTDOWN_TIMEOUT_S = 60
"""Between SIGTERM and SIGKILL for a worker: longer than a checkpoint takes."""

EXIT_ASKED_TO_STOP = 143
"""As the trainer's own end after a signal: 128 + SIGTERM. torchrun would end with 1, as after a failure."""

PEER_LOST = signal.SIGUSR2
"""Sent to all processes of a job when one of its nodes is gone."""


def main(argv: Sequence[str]) -> int:
    """Run torchrun with its options; its workers have been stopped, and have saved, when this returns.

    Raises:
        ChildFailedError: the workers failed, and so did their restarts.
    """
    # Survives the signal, while its workers die of it: a handler, other than to ignore it, is not passed on to them.
    # They wait for the lost peer in a collective that would take minutes to give up, and torchrun starts them again.
    signal.signal(PEER_LOST, lambda *_: None)
    options = list(argv)
    # torch 2.11 does not know it and always waits 30 s.
    if "--shutdown-timeout" in get_args_parser().format_help():
        options.insert(0, f"--shutdown-timeout={SHUTDOWN_TIMEOUT_S}")
    try:
        torchrun(options)
    except SignalException as end:
        sys.stderr.write(f"elasticqa: stopped by {end.sigval.name}\n")
        return EXIT_ASKED_TO_STOP
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
