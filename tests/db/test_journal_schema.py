import json
import tarfile
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, Double, Integer, Text, inspect

from db import journal_schema as schema
from db.ingest.lines import check_of, values_of
from db.journal_schema import (
    LINES,
    AnnotationLine,
    CheckpointLine,
    EvaluationLine,
    EventLine,
    Kind,
    Line,
    ProfileLine,
    StepLine,
    SystemLine,
)
from db.models import Annotation, Base, Checkpoint, Evaluation, Event, Profile, Step, SystemSample
from elasticqa.run.metrics import Evaluation as EvaluationMetrics
from elasticqa.run.metrics import StepMetrics
from tests import compatibility

OF_PLACE = {"run_id", "attempt", "node_rank", "line"}
COLUMN_TYPES = {
    check_of(hint): column_type
    for hint, column_type in (
        (schema.Count, Integer),
        (schema.BigCount, BigInteger),
        (schema.Number, Double),
        (schema.Time, Double),
        (schema.Flag, Boolean),
        (schema.Text, Text),
        (schema.Object, JSON),
        (schema.Array, JSON),
    )
}


def names_of(kind: type[Any]) -> set[str]:
    return {item.name for item in fields(kind)}


def test_every_kind_has_a_class() -> None:
    assert set(get_args(Kind)) == set(LINES)


@pytest.mark.parametrize(
    ("line", "table"),
    [
        (StepLine, Step),
        (EvaluationLine, Evaluation),
        (CheckpointLine, Checkpoint),
        (EventLine, Event),
        (SystemLine, SystemSample),
        (ProfileLine, Profile),
        (AnnotationLine, Annotation),
    ],
)
def test_columns_are_the_fields_of_a_line_and_hold_their_values(line: type[Line], table: type[Base]) -> None:
    columns = {column.name: column for column in inspect(table).columns if column.name not in OF_PLACE}
    assert columns.keys() == names_of(line) - OF_PLACE
    hints = get_type_hints(line, include_extras=True)
    for item in fields(line):
        column = columns.get(item.name)
        if column is None or item.name == "kind":
            continue
        assert type(column.type) is COLUMN_TYPES[check_of(hints[item.name])], item.name
        assert column.nullable == (item.default is None), item.name


@pytest.mark.parametrize(("line", "metrics"), [(StepLine, StepMetrics), (EvaluationLine, EvaluationMetrics)])
def test_metrics_of_the_core_are_the_fields_of_a_line(line: type[Line], metrics: type[Any]) -> None:
    assert names_of(line) - {"t"} == names_of(metrics)


def test_schema_lists_every_key_that_a_run_writes() -> None:
    with tarfile.open(Path(compatibility.__file__).with_name("version-0.1.tar.xz")) as archive:
        files = [archive.extractfile(name) for name in archive.getnames() if name.endswith("-node-00000.jsonl")]
        lines = [json.loads(raw) for file in files if file is not None for raw in file]
    assert {line["kind"] for line in lines} >= {"attempt", "setup", "step", "evaluation", "checkpoint", "end"}
    for line in lines:
        assert line.keys() - {"n", "kind"} <= names_of(LINES[line["kind"]])
        values_of(line, LINES[line["kind"]])
