"""The row of a run, computed from its attempts and annotations whenever one of them changes."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Integer, String

from db.ingest.attempts import submitted_at
from db.models import Annotation, Attempt, Run

IGNORED_CONFIG_KEYS = frozenset({"name", "resume", "seed"})
"""Config keys in which repeats may differ."""


def summarise_run(attempts: Sequence[Attempt], annotations: Sequence[Annotation], num_lines: int) -> Run:
    """Return the row of a run from all its attempts, at least one, and annotations, both in order.

    `num_lines` is the number of lines of all its files.
    """
    first, newest = attempts[0], attempts[-1]
    name, tags, note = _annotated(attempts, annotations)
    return Run(
        run_id=newest.run_id,
        provenance=first.provenance,
        name=name,
        tags=tags,
        note=note,
        recipe=_of_config(newest, "recipe"),
        model=_of_setup(attempts, "model", "model", "name") or _of_config(newest, "model"),
        dataset=_of_setup(attempts, "dataset", "dataset", "name") or _of_config(newest, "dataset"),
        parallel=_of_config(newest, "parallel"),
        precision=_newest(attempts, lambda item: _storable("precision", item.setup.get("precision")))
        or _of_config(newest, "precision"),
        config=newest.config,
        config_digest=_digest(attempts),
        status=newest.status,
        created_at=submitted_at(first.run_id, first.started_at) or first.started_at,
        started_at=first.started_at,
        ended_at=newest.ended_at,
        last_seen_at=newest.last_seen_at,
        num_attempts=len(attempts),
        world_size=newest.world_size,
        num_nodes=newest.num_nodes,
        device_type=_joined(newest, "device_type"),
        device_name=_joined(newest, "device_name"),
        global_batch_size=_of_config(newest, "global_batch_size"),
        num_epochs=_storable("num_epochs", newest.config.get("epochs")),
        step=_newest(attempts, lambda item: item.start_step if item.end_step is None else item.end_step),
        num_steps=_newest(attempts, lambda item: _storable("num_steps", item.setup.get("num_steps"))),
        num_train_features=_of_setup(attempts, "num_train_features", "dataset"),
        num_parameters=_of_setup(attempts, "num_parameters", "model"),
        wall_clock_s=_wall_clock_s(first, newest),
        train_time_s=_total(item.train_time_s for item in attempts),
        eval_time_s=_total(item.eval_time_s for item in attempts),
        final_loss=newest.final_loss,
        em=_newest(attempts, lambda item: item.em),
        f1=_newest(attempts, lambda item: item.f1),
        samples_per_s=_newest(attempts, lambda item: item.samples_per_s),
        tokens_per_s=_newest(attempts, lambda item: item.tokens_per_s),
        peak_memory_bytes=_largest(item.peak_memory_bytes for item in attempts),
        peak_reserved_bytes=_largest(item.peak_reserved_bytes for item in attempts),
        num_lines=num_lines,
    )


def _annotated(
    attempts: Sequence[Attempt], annotations: Sequence[Annotation]
) -> tuple[str | None, list[str], str | None]:
    name = _newest(attempts, lambda item: item.name)
    note = _newest(attempts, lambda item: item.note)
    tags: list[str] = []
    for annotation in annotations:
        value = annotation.value
        if annotation.kind == "name":
            name = value or None
        elif annotation.kind == "note":
            note = value or None
        elif annotation.kind == "untag":
            tags = [tag for tag in tags if tag != value]
        elif value not in tags:
            tags.append(value)
    return name, tags, note


def _joined(attempt: Attempt, key: str) -> str | None:
    """Return a fact of the hosts; different ones are joined by ' + '."""
    names = {host[key] for host in attempt.hosts if isinstance(host.get(key), str)}
    text = " + ".join(sorted(names))
    return _storable(key, text) if text else None


def _digest(attempts: Sequence[Attempt]) -> str:
    """Return a digest that is equal for runs of equal provenance, config, world sizes and devices."""
    newest = attempts[-1]
    config = _compared_config(newest)
    # If the config changed between attempts, the digest covers every config, as the wall clock does.
    others = sorted(
        {json.dumps(_compared_config(item), sort_keys=True) for item in attempts if _compared_config(item) != config}
    )
    worlds = sorted({f"{item.world_size} {item.num_nodes} {_joined(item, 'device_name')}" for item in attempts})
    text = json.dumps([newest.provenance, config, worlds, *others], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _compared_config(attempt: Attempt) -> dict[str, Any]:
    return {key: value for key, value in attempt.config.items() if key not in IGNORED_CONFIG_KEYS}


def _wall_clock_s(first: Attempt, newest: Attempt) -> float | None:
    if newest.ended_at is None:
        return None
    if first is newest:
        return newest.wall_clock_s
    return newest.ended_at - first.started_at


def _newest(attempts: Sequence[Attempt], value_of: Callable[[Attempt], Any]) -> Any:
    return next((value for item in reversed(attempts) if (value := value_of(item)) is not None), None)


def _total(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _of_config(attempt: Attempt, name: str) -> Any:
    return _storable(name, attempt.config.get(name))


def _of_setup(attempts: Sequence[Attempt], column: str, part: str, key: str | None = None) -> Any:
    return _newest(attempts, lambda item: _storable(column, (item.setup.get(part) or {}).get(key or column)))


def _storable(column: str, value: Any) -> Any:
    """Return a value from a free-form object if a column of `Run` can hold it, else None."""
    kind = Run.__table__.c[column].type
    if isinstance(kind, String):
        fits = type(value) is str and (kind.length is None or len(value) <= kind.length)
    elif isinstance(kind, Integer):
        fits = type(value) is int and 0 <= value < 2 ** (63 if isinstance(kind, BigInteger) else 31)
    else:
        fits = type(value) in (int, float) and -1e308 <= value <= 1e308
    return value if fits else None
