"""The Hugging Face Trainer on the same features, with its fastest settings."""

import os
import tempfile
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from benchmarks.support.setup import build_model
from benchmarks.training.interleaved import Case
from benchmarks.training.padded_dataset import PaddedDataset, identity_collator
from benchmarks.training.worker import Worker

BF16: dict[str, Any] = {"bf16": True, "tf32": True}
GROUPED = "group_by_length"
VARIANTS: dict[str, dict[str, Any]] = {
    "hf_fp32": {"tf32": False},
    "hf_tf32": {"tf32": True},
    "hf_bf16": BF16,
    "hf_bf16_compile": {**BF16, "torch_compile": True},
    "hf_bf16_compile_graphs": {**BF16, "torch_compile": True, "torch_compile_mode": "reduce-overhead"},
    "hf_bf16_grouped": {**BF16, "train_sampling_strategy": GROUPED},
    "hf_ddp": BF16,
    "hf_fp32_grouped": {"tf32": False, "train_sampling_strategy": GROUPED},
}
"""Variant -> its arguments; with tf32=False it computes in plain fp32."""
WORKERS = 4


def arguments(folder: str, case: Case, **more: Any) -> TrainingArguments:
    """Return training arguments without saving, logging and evaluation.

    Args:
        folder: output directory of the Trainer.
        case: batch size and number of devices.
        more: arguments of the variant.
    """
    is_cuda = torch.cuda.is_available()
    if not is_cuda:
        # TrainingArguments refuses it without a GPU.
        more.pop("tf32", None)
    settings: dict[str, Any] = {
        "output_dir": folder,
        "per_device_train_batch_size": case.global_batch_size // case.world_size,
        "learning_rate": 4e-5,
        "weight_decay": 0.01,
        "optim": "adamw_torch_fused",
        "use_cpu": not is_cuda,
        "ddp_find_unused_parameters": False,
        "average_tokens_across_devices": False,
        "dataloader_num_workers": WORKERS if is_cuda else 0,
        "dataloader_persistent_workers": is_cuda,
        "dataloader_pin_memory": is_cuda,
        "dataloader_drop_last": True,
        "remove_unused_columns": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        # The filter reads the loss in every step and so waits for the device.
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
    }
    return TrainingArguments(**settings | more)


class _Turns(TrainerCallback):
    """Waits for the variant's turn, and stops the training at the end."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self._worker.wants_step()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_training_stop = not self._worker.wants_step()


def run(case: Case, worker: Worker) -> None:
    """Train until the parent process stops the worker."""
    changes = dict(VARIANTS[case.variant])
    if case.world_size > 1 and not torch.cuda.is_available():
        changes["ddp_backend"] = "gloo"
    rows = PaddedDataset(case.data.features(), is_padded=changes.get("train_sampling_strategy") != GROUPED)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.fspath(case.data.cache / "compiled"))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build_model(case.model, 0, attn_implementation="sdpa"),
            args=arguments(folder, case, num_train_epochs=1000, **changes),
            train_dataset=rows,
            data_collator=identity_collator,
            callbacks=[_Turns(worker)],
        )
        trainer.train()
