"""torchrun with an exit status that a scheduler can act on: asked to stop is not failed."""

import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.run import main as torchrun

EXIT_ASKED_TO_STOP = 143
"""As the trainer's own end after a signal: 128 + SIGTERM. torchrun would end with 1, as after a failure."""


def main(argv: Sequence[str]) -> int:
    """Run torchrun with its options; its workers have been stopped, and have saved, when this returns.

    Raises:
        ChildFailedError: the workers failed, and so did their restarts.
    """
    try:
        torchrun(list(argv))
    except SignalException as end:
        sys.stderr.write(f"elasticqa: stopped by {end.sigval.name}\n")
        return EXIT_ASKED_TO_STOP
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
