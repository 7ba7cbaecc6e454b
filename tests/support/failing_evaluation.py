"""The trainer with an evaluation that fails on rank 1 of the first attempt: run by test_hangs.py on real ranks."""

import os
import signal
import sys
import threading

from torch import nn

from elasticqa.elastic import failure_detector
from elasticqa.run.metrics import Evaluation
from elasticqa.training import builder, main
from elasticqa.training.evaluation import Evaluator

STUCK_S = 4.0
"""Instead of ten minutes."""
WAY_VARIABLE = "TEST_EVALUATION"
RAISES, HANGS, FOLLOWS = "raises", "hangs", "follows"


class FailingEvaluator(Evaluator):
    """Fails as on a faulty data set, waits for ever, or fails because another rank has died."""

    def __call__(self, model: nn.Module, step: int) -> Evaluation | None:
        pids = self.topology.all_gather(os.getpid())
        if os.environ[WAY_VARIABLE] == HANGS and self.topology.restart_count == 0:
            failure_detector.STUCK_S = STUCK_S
        if self.topology.rank == 1 and self.topology.restart_count == 0:
            if os.environ[WAY_VARIABLE] == HANGS:
                threading.Event().wait()
            if os.environ[WAY_VARIABLE] == FOLLOWS:
                os.kill(pids[0], signal.SIGKILL)
                raise ConnectionError("as a collective would")
            raise IndexError("span 7 is not in the context\nnor anywhere")
        return super().__call__(model, step)


if __name__ == "__main__":
    assert os.environ["RANK"]
    builder.Evaluator = FailingEvaluator  # type: ignore[attr-defined]
    sys.exit(main.main())
