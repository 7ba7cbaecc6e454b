"""Columns of a select, from the fields of the row it returns."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import DeclarativeBase


def columns_of(
    entity: type[DeclarativeBase],
    row_type: type[Any],
    computed: Mapping[str, ColumnElement[Any]] | None = None,
) -> list[ColumnElement[Any]]:
    """Return one labelled column for each field of a row type, so that a select reads no other columns."""
    computed = computed or {}
    return [
        (computed[field.name] if field.name in computed else getattr(entity, field.name)).label(field.name)
        for field in fields(row_type)
    ]
