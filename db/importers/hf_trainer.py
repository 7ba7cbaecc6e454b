"""Results of the Hugging Face Trainer: `trainer_state.json` and the `*_results.json` files beside it.

Losses are means over the steps since the last log, as the Trainer writes them. The Trainer logs no step times; the
only times are `train_runtime` and those of the evaluations, without loading and set-up. The pickled
`training_args.bin` is never opened.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.importers.fields import Fields, ImportFormatError, shown
from db.importers.metric_names import JournalField, journal_field_of
from db.importers.run import ImportedRun, MetricPoints, changed_at, digest_of, name_of
from db.storage.json_stream import JsonStream, JsonStreamError, open_json

FORMAT = "Hugging Face Trainer"
STATE = "trainer_state.json"
RESULTS = ("train_results.json", "eval_results.json", "predict_results.json", "test_results.json", "all_results.json")
MAX_BYTES = 256 * 2**20
"""Limit of a file, after decompression."""
MAX_VALUE_CHARS = 2**20
"""Limit of one value: an entry of a streamed array, or any other member."""
_STATE_COUNTS = ("global_step", "max_steps", "train_batch_size")
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,9})")


@dataclass
class _State:
    """What the files contain besides metrics of steps and evaluations."""

    global_step: int | None = None
    max_steps: int | None = None
    micro_batch_size: int | None = None
    num_epochs: float | None = None
    num_train_samples: int | None = None
    train_time_s: float | None = None
    samples_per_s: float | None = None
    other_metrics: dict[str, float] = field(default_factory=dict)


def state_file(folder: Path) -> Path | None:
    """Return the state file of an output directory, or that of its newest checkpoint."""
    if (folder / STATE).is_file():
        return folder / STATE
    found = [
        (int(match[1]), entry / STATE)
        for entry in folder.iterdir()
        if (match := _CHECKPOINT.fullmatch(entry.name)) and (entry / STATE).is_file()
    ]
    return max(found)[1] if found else None


def read_hf_trainer(state_path: Path | None, folder: Path) -> ImportedRun:
    """Return the run of an output directory, with its results and the model's `config.json`; the state may be None.

    Raises:
        ImportFormatError: a file is damaged.
    """
    results = [folder / name for name in RESULTS if (folder / name).is_file()]
    model = folder / "config.json"
    files = [file for file in (state_path, *results, model) if file is not None and file.is_file()]
    points, state = MetricPoints(state_path or folder), _State()
    ended_at = max(changed_at(file) for file in files)
    if state_path is not None:
        _read_state(state_path, ended_at, points, state)
    for file in results:
        _take_summary(Fields(file, "", small_object(file)), ended_at, points, state)
    setup, software = _model_facts(model, state)
    lines = [("setup", ended_at, setup), *points.lines(ended_at)]
    if state.other_metrics:
        other = {
            "name": "imported_figures",
            "message": "metrics of the file that have no column",
            "data": state.other_metrics,
        }
        lines.append(("event", ended_at, other))
    settings = {"epochs": state.num_epochs, "micro_batch_size": state.micro_batch_size}
    return ImportedRun(
        format=FORMAT,
        path=state_path or folder,
        digest=digest_of(FORMAT, files),
        started_at=max(0.0, ended_at - (state.train_time_s or 0.0)),
        ended_at=ended_at,
        name=name_of(folder),
        config={name: value for name, value in settings.items() if value is not None},
        software=software,
        facts=tuple(lines),
        end=_end(state, points),
    )


def _read_state(path: Path, t: float, points: MetricPoints, state: _State) -> None:
    top: dict[str, Any] = {}
    num_entries = None
    for key, index, value in members(path, streamed=("log_history",)):
        if index is None:
            top[key] = value
        else:
            num_entries = index + 1
            if not isinstance(value, Mapping):
                raise ImportFormatError(path, f"log_history entry {index}", f"{shown(value)} is not an object")
            _take_entry(Fields(path, f"log_history entry {index}", value), t, points, state)
    if num_entries is None and top.get("log_history") != []:
        _refuse_without_history(path, top)
    fields = Fields(path, "", top)
    state.global_step, max_steps, state.micro_batch_size = (fields.count(name) for name in _STATE_COUNTS)
    state.max_steps = max_steps or None
    state.num_epochs = fields.at_least_zero("num_train_epochs")


def _refuse_without_history(path: Path, top: Mapping[str, Any]) -> None:
    if "log_history" in top and top["log_history"] is not None:
        raise ImportFormatError(path, "log_history", f"{shown(top['log_history'])} is not an array")
    if "global_step" not in top:
        raise ImportFormatError(
            path, "", "has neither log_history nor traceEvents: neither a trainer state nor a trace"
        )


def _take_entry(fields: Fields, t: float, points: MetricPoints, state: _State) -> None:
    step = fields.count("step")
    if step is None:
        raise fields.error("has no step, which is a count")
    if "train_runtime" in fields.values:
        _take_training(fields, state)
        return
    meanings = {key: meaning for key in fields.values if (meaning := journal_field_of(key)) and key != "epoch"}
    for key, meaning in meanings.items():
        points.add(meaning, step, t, fields.number(key) if meaning.split is None else fields.at_least_zero(key))
    if any(meaning.split is None for meaning in meanings.values()):
        points.add(JournalField(None, "passes"), step, t, fields.at_least_zero("epoch"))


def _take_training(fields: Fields, state: _State) -> None:
    state.train_time_s = fields.at_least_zero("train_runtime") or state.train_time_s
    state.samples_per_s = fields.at_least_zero("train_samples_per_second") or state.samples_per_s
    state.num_train_samples = fields.count("train_samples") or state.num_train_samples
    named = (("train_loss", "mean_train_loss"), ("train_steps_per_second", "steps_per_s"), ("total_flos", "total_flos"))
    for key, name in named:
        if (value := fields.number(key)) is not None:
            state.other_metrics[name] = value


def _take_summary(fields: Fields, t: float, points: MetricPoints, state: _State) -> None:
    """Add a results file; it has no step numbers, so its evaluations belong to the last step."""
    if any(key.startswith("train_") for key in fields.values):
        _take_training(fields, state)
    step = points.last_step if state.global_step is None else state.global_step
    for key in fields.values:
        meaning = journal_field_of(key)
        if meaning is not None and meaning.split is not None:
            points.add(meaning, step, t, fields.at_least_zero(key))


def _model_facts(path: Path, state: _State) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the setup line and the software versions, from the model's configuration if it exists."""
    setup: dict[str, Any] = {"num_steps": state.max_steps, "dataset": {"num_train_features": state.num_train_samples}}
    software: dict[str, Any] = {}
    if path.is_file():
        fields = Fields(path, "", small_object(path))
        setup["model"] = {"name": fields.text("_name_or_path"), "model_type": fields.text("model_type")}
        if version := fields.text("transformers_version"):
            software["transformers"] = version
    return setup, software


def _end(state: _State, points: MetricPoints) -> dict[str, Any]:
    step = points.last_step if state.global_step is None else state.global_step
    is_whole = state.train_time_s is not None or state.max_steps is None or step >= state.max_steps
    reason = "the wall clock is train_runtime, without loading and set-up"
    if not is_whole:
        reason = f"the state is from step {step} of {state.max_steps}, before the end of training"
    return {
        "status": "finished" if is_whole else "preempted",
        "reason": reason if state.train_time_s is not None or not is_whole else "imported without a wall clock",
        "step": step or None,
        "wall_clock_s": state.train_time_s,
        "train_time_s": state.train_time_s,
        "samples_per_s": state.samples_per_s,
        "final_loss": points.final_loss(),
    }


def members(path: Path, streamed: Collection[str] = ()) -> Iterator[tuple[str, int | None, Any]]:
    """Yield (key, None, value) for each member of the object in a file, in order.

    An array under a key of `streamed` comes entry by entry, as (key, index, entry).

    Raises:
        ImportFormatError: the file holds no such object, is damaged, or exceeds the limits.
    """
    with open_json(path) as file:
        stream = JsonStream(file, max_value_chars=MAX_VALUE_CHARS, max_bytes=MAX_BYTES)
        try:
            for key, index, value, _ in stream.members(streamed):
                yield key, index, value
            stream.expect_end()
        except JsonStreamError as error:
            raise ImportFormatError(path, f"character {error.position:,}", error.problem) from error


def small_object(path: Path) -> dict[str, Any]:
    """Return the object in a file of at most 1 MiB.

    Raises:
        ImportFormatError: as `members` does.
    """
    if path.stat().st_size > MAX_VALUE_CHARS:
        raise ImportFormatError(path, "", f"{path.stat().st_size:,} bytes, at most 1 MiB is read of such a file")
    return {key: value for key, _, value in members(path)}
