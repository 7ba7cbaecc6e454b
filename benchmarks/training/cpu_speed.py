"""Features per second of training on a CPU, compared with the Hugging Face Trainer, and a check that losses agree.

The losses of the first steps are compared for equal weights and batches without dropout. transformers counts padding
among the positions where an answer may begin; here it is left out, as elasticqa does.
"""

import tempfile
from contextlib import ExitStack
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer

from benchmarks.support.setup import MAX_LENGTH, Data, build_model, facts, model_name, parser, write
from benchmarks.training.elasticqa_loop import Loop
from benchmarks.training.hf_trainer import arguments
from benchmarks.training.interleaved import Case, Pace, measure, summary
from benchmarks.training.padded_dataset import PaddedDataset, identity_collator
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import epoch_order
from elasticqa.data.squad.features import Features
from elasticqa.data.task import first_features
from elasticqa.distributed.topology import Topology

DEFAULT = ("elasticqa", "hf_fp32", "hf_fp32_grouped")
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class _OverTokens(nn.Module):
    """A model of transformers whose loss ignores padding."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, start_positions: Tensor, end_positions: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        output = self.model(**inputs)
        is_padding = inputs["attention_mask"] == 0
        start, end = (
            F.cross_entropy(logits.masked_fill(is_padding, float("-inf")), positions)
            for logits, positions in ((output.start_logits, start_positions), (output.end_logits, end_positions))
        )
        return {"loss": (start + end) / 2}


def main() -> None:
    """Compare the losses, then the speed."""
    options = parser(__doc__ or "")
    options.add_argument("--model", required=True, help="directory with weights, or tiny")
    options.add_argument("--batch-size", type=int, default=24)
    options.add_argument("--variants", nargs="+", default=DEFAULT)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--seconds", type=float, default=12.0, help="minimum of a repeat; 0: one step")
    options.add_argument("--equal-steps", type=int, default=5)
    options.add_argument("--equal-batch-size", type=int, default=4)
    given = options.parse_args()
    data = Data.of(given)
    features = data.features()
    num_steps, size = given.equal_steps, given.equal_batch_size
    alike = first_features(features, num_steps * size)
    ours, theirs = ours_losses(given.model, alike, size), trainer_losses(given.model, alike, data, size)
    equality: dict[str, Any] = {
        "what": "equality",
        "variant": "elasticqa",
        "model": model_name(given.model),
        "global_batch_size": size,
        "world_size": 1,
        "losses": ours,
        "losses_of_hf_fp32": theirs,
        "largest_difference": max(abs(a - b) for a, b in zip(ours, theirs, strict=True)),
        **facts(),
    }
    print(f"largest difference of {num_steps} losses: {equality['largest_difference']:.1e}", flush=True)
    write(given.results, [equality])
    cases = [Case(name, given.model, given.batch_size, data, warm_up_steps=1) for name in given.variants]
    # In the first step after the other variants, caches are cold and threads asleep.
    pace = Pace(given.repeats, given.seconds, ready_within_s=600, settle_steps=1 if given.seconds else 0)
    speeds = measure(cases, pace, given.results.with_suffix(".speed.json"))
    write(given.results, [equality, *speeds])
    given.results.with_suffix(".speed.json").unlink()
    print(summary(speeds))


def ours_losses(model: str, features: Features, size: int) -> list[float]:
    """Return elasticqa's losses of one epoch, without dropout."""
    config = TrainConfig(
        parallel="none",
        precision="fp32",
        global_batch_size=size,
        micro_batch_size=size,
        learning_rate=4e-5,
        warmup_ratio=0.0,
        epochs=1,
        max_length=MAX_LENGTH,
    )
    with ExitStack() as stack:
        loop = Loop(config, features, Topology.from_env({}), model, stack, **NO_DROPOUT)
        loop.warm_up()
        for _ in range(len(features) // size):
            loop.step()
        loop.read_all()
    return loop.losses


def trainer_losses(model: str, features: Features, data: Data, size: int) -> list[float]:
    """Return the Trainer's losses of one epoch in the same order, without dropout."""
    config = TrainConfig()
    order = epoch_order(config.seed, 0, len(features))
    with tempfile.TemporaryDirectory() as folder:
        case = Case("hf_fp32", model, size, data)
        settings = arguments(
            folder,
            case,
            num_train_epochs=1,
            train_sampling_strategy="sequential",
            logging_strategy="steps",
            logging_steps=1,
            seed=config.seed,
        )
        trainer = Trainer(
            model=_OverTokens(build_model(model, config.seed, attn_implementation="sdpa", **NO_DROPOUT)),
            args=settings,
            train_dataset=PaddedDataset(features, is_padded=True, order=np.asarray(order)),
            data_collator=identity_collator,
        )
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    main()
