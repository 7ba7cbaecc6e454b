"""`elasticqa ingest`: update the database from the journals."""

from db.ingest.update import main

__all__ = ["main"]
