"""Columns of a select, from the fields of the row it returns."""

from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement


def columns_of(entity: Any, row_type: Any, **computed: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return one labelled column for each field of a row type, so that a select reads no other columns."""
    names = [field.name for field in fields(row_type)]
    return [computed.get(name, getattr(entity, name)).label(name) for name in names]
