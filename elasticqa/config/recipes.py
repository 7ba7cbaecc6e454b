"""Recipes: named sets of defaults; every option can still be changed on the command line."""

from dataclasses import replace

from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError

_DEMO = TrainConfig(
    epochs=3,
    global_batch_size=16,
    max_length=192,
    doc_stride=64,
    learning_rate=3e-4,
    eval_before=True,
    checkpoint_every_steps=50,
    log_every_s=3.0,
)

# Values that the authors of the recipes below do not state are defaults of the Hugging Face Trainer, which they used:
# no warm-up (the rate falls linearly from the first step), gradient norm 1.0, seed 42, a checkpoint every 500 steps.
# They do not state their precision either: it stays `auto`, and the journal names the one in use.
_SQUAD = TrainConfig(
    model="bert-base-uncased",
    dataset="rajpurkar/squad",
    epochs=2,
    global_batch_size=24,
    micro_batch_size=24,
    max_length=384,
    doc_stride=128,
    learning_rate=4e-5,
    weight_decay=0.01,
    warmup_ratio=0.0,
    max_grad_norm=1.0,
    seed=42,
    checkpoint_every_steps=500,
)

_BASELINE_10K = replace(
    _SQUAD,
    parallel="none",
    # The authors report 10,000 steps of batch 4 in 4 epochs, which is 10,000 features (not 10,000 examples) per epoch.
    max_train_features=10_000,
    max_eval_examples=500,
    epochs=4,
    global_batch_size=4,
    micro_batch_size=4,
    learning_rate=3e-5,
)

# The authors give a batch of 4 per process, so the global batch grows with the first world size.
_DISTRIBUTED_10K = replace(_BASELINE_10K, parallel="ddp", global_batch_size=None)

# The profiler takes 112 steps (2 skipped, 100 of warm-up, 10 traced); as many more run without it, so that the same run
# also measures steps without the profiler.
_PROFILE = replace(_SQUAD, profile=True, max_steps=224, max_eval_examples=500)

RECIPES: dict[str, TrainConfig] = {
    "demo": _DEMO,
    "squad": _SQUAD,
    "baseline-10k": _BASELINE_10K,
    "distributed-10k": _DISTRIBUTED_10K,
    "profile": _PROFILE,
}


def recipe(name: str) -> TrainConfig:
    """Return the config of a recipe; refuse an unknown name."""
    if name not in RECIPES:
        raise ConfigError(f"recipe={name!r} is not known: use one of {', '.join(sorted(RECIPES))}")
    return replace(RECIPES[name], recipe=name)
