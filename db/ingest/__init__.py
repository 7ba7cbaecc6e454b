"""From journals to rows, incrementally: `python -m db.ingest`."""
