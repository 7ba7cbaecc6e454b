"""`elasticqa ingest`: bring the database up to the journals."""

from collections.abc import Sequence

from db.ingest import update


def main(argv: Sequence[str]) -> int:
    """Ingest, say what was new, and return 0, or 2 where the database cannot be used."""
    return update.main(argv)
