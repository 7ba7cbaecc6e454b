"""One run of the Hugging Face Trainer for `parity`: the recipe `squad`, padded, scored with our metric."""

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, Trainer, TrainingArguments

from benchmarks.quality.parity import CURVE_EVERY
from benchmarks.support.setup import build_model
from benchmarks.training.padded_dataset import PaddedDataset, identity_collator
from elasticqa.config.recipes import recipe
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.squad.answers import Spans, best_spans, join_spans
from elasticqa.data.squad.cache import FeatureRequest, load_or_build
from elasticqa.data.squad.features import Features, Windowing
from elasticqa.data.squad.metric import Metrics, squad_metrics
from elasticqa.data.squad.read import Example, read_squad
from elasticqa.data.task import first_features
from elasticqa.distributed.topology import Topology, resolve_precision
from elasticqa.training.train_step import autocast

FEATURES_PER_BATCH = 128


def main() -> None:
    """Train, evaluate, and write the trainer's state and the results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dataset", type=Path, required=True)
    options.add_argument("--model", required=True)
    options.add_argument("--cache", type=Path, required=True)
    options.add_argument("--output", type=Path, required=True)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--max-steps", type=int, default=-1)
    options.add_argument("--max-eval-examples", type=int, default=None)
    options.add_argument("--max-train-features", type=int, default=None)
    given = options.parse_args()
    began = time.perf_counter()
    config = recipe("squad")
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    windowing = Windowing(config.max_length, config.doc_stride)
    (train_file,), (dev_file,) = (list(given.dataset.glob(f"{split}*.json*")) for split in ("train", "dev"))
    train = load_or_build(FeatureRequest(train_file, True, windowing), tokenizer, given.cache / "features").features
    request = FeatureRequest(dev_file, False, windowing, max_examples=given.max_eval_examples)
    dev = load_or_build(request, tokenizer, given.cache / "features").features
    examples = read_squad(dev_file, for_training=False).examples[: given.max_eval_examples]
    trainer = _trainer(given, config, first_features(train, given.max_train_features))
    trainer.train()
    evaluation = evaluate(trainer.model, dev, examples, config)
    trainer.log({"eval_exact_match": evaluation.em, "eval_f1": evaluation.f1})
    trainer.save_state()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    per_point = max(1, CURVE_EVERY // int(trainer.args.logging_steps))
    result = {
        "em": evaluation.em,
        "f1": evaluation.f1,
        "num_steps": trainer.state.global_step,
        "seconds": round(time.perf_counter() - began, 1),
        "losses": [round(mean(losses[i : i + per_point]), 4) for i in range(0, len(losses), per_point)],
    }
    (given.output / "quality.json").write_text(json.dumps(result), encoding="utf-8")


def _trainer(given: argparse.Namespace, config: TrainConfig, features: Features) -> Trainer:
    """Return the Trainer with the recipe's hyper-parameters."""
    is_cuda = torch.cuda.is_available()
    assert config.global_batch_size is not None
    arguments = TrainingArguments(
        output_dir=str(given.output),
        num_train_epochs=config.epochs,
        max_steps=given.max_steps,
        per_device_train_batch_size=config.global_batch_size,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup_ratio,
        max_grad_norm=config.max_grad_norm,
        lr_scheduler_type="linear",
        optim="adamw_torch_fused",
        bf16=is_cuda,
        use_cpu=not is_cuda,
        seed=given.seed,
        dataloader_num_workers=2 if is_cuda else 0,
        dataloader_pin_memory=is_cuda,
        remove_unused_columns=False,
        save_strategy="no",
        logging_steps=10,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    return Trainer(
        model=build_model(given.model, given.seed, attn_implementation="sdpa"),
        args=arguments,
        train_dataset=PaddedDataset(features, is_padded=True),
        data_collator=identity_collator,
    )


@torch.no_grad()
def evaluate(model: Any, features: Features, examples: list[Example], config: TrainConfig) -> Metrics:
    """Return EM and F1 of a model of transformers on padded batches."""
    model.eval()
    device = next(model.parameters()).device
    precision = resolve_precision("auto", Topology.from_env({}).device)
    rows = PaddedDataset(features, is_padded=True)
    parts = []
    for indices in np.array_split(np.arange(len(features)), -(-len(features) // FEATURES_PER_BATCH)):
        batch = {name: values.to(device) for name, values in rows.__getitems__(indices.tolist()).items()}
        mask = batch["attention_mask"].bool()
        with autocast(precision, device):
            output = model(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})
        start, end = (logits[mask].float().cpu().numpy() for logits in (output.start_logits, output.end_logits))
        parts.append(best_spans(features, indices, start, end, config.max_answer_length))
    predictions = join_spans(features, Spans.concatenate(parts), examples)
    return squad_metrics({each.id: each.text for each in predictions}, examples)


if __name__ == "__main__":
    main()
