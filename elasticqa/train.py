"""One rank of a training run: builds the parts, runs, exits."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from elasticqa.batching import StepPlanner
from elasticqa.checkpoint import Checkpointer
from elasticqa.config import BatchPlan, TrainConfig, batch_plan
from elasticqa.environment import git_facts, host_facts, scheduler_facts, software_facts
from elasticqa.errors import CheckpointError, ConfigError, DataError
from elasticqa.evaluation import Evaluator
from elasticqa.export import save_pretrained
from elasticqa.flags import parse_config
from elasticqa.home import HomeError, runs_dir
from elasticqa.hub import load_tokenizer, resolve_model
from elasticqa.journal import SCHEMA_VERSION, FedLog, Journal, claim_attempt
from elasticqa.model import ModelSpec, QuestionAnswerer, flops_per_token, load_model
from elasticqa.optim import Updater, build_optimizer
from elasticqa.parallel import wrap
from elasticqa.record import Recorder
from elasticqa.resume import RunChoice, choose_run, hold, last_end
from elasticqa.signals import StopRequest
from elasticqa.squad.task import Task, load_task
from elasticqa.summary import summary
from elasticqa.system import SystemSampler
from elasticqa.tensorboard import TensorBoardLog
from elasticqa.topology import Topology, resolve_precision
from elasticqa.trainer import NonFiniteLossError, Trainer

PROCESS_GROUP_TIMEOUT = timedelta(minutes=5)
SYSTEM_SAMPLE_INTERVAL_S = 5.0
