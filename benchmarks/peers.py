"""The Hugging Face Trainer on the same features, with the settings that suit it best."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    AutoModelForQuestionAnswering,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from benchmarks.setting import MAX_LENGTH, Peak, bert_config
from elasticqa.squad.features import Features

NUM_FEATURES = 12_000
"""Taken at random; more than any measurement sees."""
WARMUP_STEPS = 15
Item = dict[str, Tensor]


class Rows(Dataset[Item]):
    """Features as a model of transformers takes them, padded to the full length or not at all."""

    def __init__(self, features: Features, *, is_padded: bool) -> None:
        chosen = np.random.default_rng(0).choice(len(features), min(NUM_FEATURES, len(features)), replace=False)
        self._items = [self._item(features, int(index), is_padded=is_padded) for index in chosen]

    @staticmethod
    def _item(features: Features, index: int, *, is_padded: bool) -> Item:
        begin, end = features.offsets[index : index + 2]
        length = int(end - begin)
        size = MAX_LENGTH if is_padded else length
        input_ids = torch.zeros(size, dtype=torch.int64)
        input_ids[:length] = torch.from_numpy(features.input_ids[begin:end].astype(np.int64))
        places = torch.arange(size)
        return {
            "input_ids": input_ids,
            "attention_mask": (places < length).long(),
            "token_type_ids": ((places >= int(features.segment_start[index])) & (places < length)).long(),
            "start_positions": torch.tensor(int(features.start_position[index])),
            "end_positions": torch.tensor(int(features.end_position[index])),
        }

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Item:
        return self._items[index]


def collate(items: Sequence[Item]) -> Item:
    """Return a batch padded to its longest feature, up to a multiple of 8."""
    size = -(-max(len(item["input_ids"]) for item in items) // 8) * 8
    batch = {
        name: torch.zeros(len(items), size, dtype=torch.int64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    for row, item in enumerate(items):
        for name, values in batch.items():
            values[row, : len(item[name])] = item[name]
    return batch | {name: torch.stack([item[name] for item in items]) for name in ("start_positions", "end_positions")}


class _Clock(TrainerCallback):
    """Measures from the end of the warm-up to the end of the last step."""

    def __init__(self) -> None:
        self.began = self.seconds = 0.0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step in (WARMUP_STEPS, state.max_steps):
            torch.cuda.synchronize()
            self.seconds = time.perf_counter() - self.began
            self.began = time.perf_counter()


@dataclass(frozen=True)
class Settings:
    """What differs between the variants of the Trainer."""

    is_compiled: bool = False
    is_grouped: bool = False


class HfTrainer:
    """Training steps of the Hugging Face Trainer in bf16 with SDPA and fused AdamW."""

    def __init__(self, settings: Settings, features: Features, batch_size: int, model: str = "bert-base") -> None:
        self._settings = settings
        self._batch_size = batch_size
        self._rows = Rows(features, is_padded=not settings.is_grouped)
        self.peak = Peak()
        with self.peak.building():
            self._model: Any = AutoModelForQuestionAnswering.from_config(bert_config(model, attn_implementation="sdpa"))
            self._model.cuda()

    def run(self, num_steps: int) -> float:
        """Return features per second over ``num_steps`` steps after a warm-up."""
        clock = _Clock()
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=self._batch_size,
                max_steps=WARMUP_STEPS + num_steps,
                learning_rate=4e-5,
                weight_decay=0.01,
                bf16=True,
                tf32=True,
                optim="adamw_torch_fused",
                torch_compile=self._settings.is_compiled,
                train_sampling_strategy="group_by_length" if self._settings.is_grouped else "random",
                dataloader_num_workers=4,
                dataloader_drop_last=True,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
            )
            trainer = Trainer(
                model=self._model,
                args=arguments,
                train_dataset=self._rows,
                data_collator=collate if self._settings.is_grouped else None,
                callbacks=[clock],
            )
            with self.peak.stepping():
                trainer.train()
        return num_steps * self._batch_size / clock.seconds
