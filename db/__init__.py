"""The record: tables, migrations, ingest of journals, queries and statistics."""
