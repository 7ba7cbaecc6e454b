"""Lightning's Trainer on the same features, with its fastest settings."""

import os
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers.models.bert.modeling_bert import BertLayer

from benchmarks.support.setup import build_model
from benchmarks.training.interleaved import Case
from benchmarks.training.padded_dataset import Batch, PaddedDataset, identity_collator
from benchmarks.training.worker import Worker

NUM_STEPS = 10_000
"""Length of the schedule; more than any measurement takes."""
WORKERS = 4


class _Module(L.LightningModule):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        loss: Tensor = self.model(**batch).loss
        return loss

    def configure_optimizers(self) -> Any:
        """Return AdamW with a linear schedule; weight decay goes by name, since FSDP flattens all shapes."""
        decayed: list[Tensor] = []
        others: list[Tensor] = []
        for name, parameter in self.named_parameters():
            (others if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        optimizer = AdamW(groups, lr=4e-5, fused=True)
        schedule = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / NUM_STEPS))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        """Clip to norm 1 like the other trainers; Lightning's own clipping refuses FSDP."""
        whole = self.trainer.strategy.model
        if isinstance(whole, FullyShardedDataParallel):
            whole.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)


class _Turns(L.Callback):
    """Waits for the variant's turn, and stops the training at the end."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_train_start(self, *_: Any) -> None:
        assert self._worker.wants_step()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.should_stop = not self._worker.wants_step()


def _strategy(variant: str) -> Any:
    if variant == "lightning_ddp":
        return DDPStrategy(gradient_as_bucket_view=True)
    if variant == "lightning_fsdp":
        # Keeps parameters after the forward pass: they fit on two GPUs, and gathering them again takes time.
        return FSDPStrategy(auto_wrap_policy={BertLayer}, sharding_strategy="SHARD_GRAD_OP")
    return "auto"


def run(case: Case, worker: Worker) -> None:
    """Train until the parent process stops the worker."""
    is_cuda = torch.cuda.is_available()
    if case.world_size > 1:
        # Lightning then does not start the other ranks itself.
        os.environ.setdefault("TORCHELASTIC_RUN_ID", "benchmark")
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(
        PaddedDataset(case.data.features(), is_padded=True),
        batch_size=case.global_batch_size // case.world_size,
        shuffle=True,
        num_workers=WORKERS if is_cuda else 0,
        persistent_workers=is_cuda,
        pin_memory=is_cuda,
        drop_last=True,
        collate_fn=identity_collator,
    )
    trainer = L.Trainer(
        accelerator="gpu" if is_cuda else "cpu",
        devices=case.world_size,
        strategy=_strategy(case.variant),
        precision="bf16-mixed",
        max_epochs=-1,
        barebones=True,
        callbacks=[_Turns(worker)],
    )
    trainer.fit(_Module(build_model(case.model, 0, attn_implementation="sdpa")), loader)
