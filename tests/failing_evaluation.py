"""The trainer with an evaluation that raises on rank 1 of the first attempt: run by test_hang.py on real ranks."""

import os
import sys

from torch import nn

from elasticqa import build, train
from elasticqa.evaluation import Evaluator
from elasticqa.metrics import Evaluation


class FailingEvaluator(Evaluator):
    """Fails where a data set with a fault would."""

    def __call__(self, model: nn.Module, step: int) -> Evaluation | None:
        if self.topology.rank == 1 and self.topology.restart_count == 0:
            raise IndexError("span 7 is not in the context\nnor anywhere")
        return super().__call__(model, step)


if __name__ == "__main__":
    assert os.environ["RANK"]
    build.Evaluator = FailingEvaluator  # type: ignore[attr-defined]
    sys.exit(train.main())
