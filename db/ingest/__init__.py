"""Ingest: new lines of the journals become rows, incrementally and idempotently (`python -m db.ingest`)."""
