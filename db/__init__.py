"""The record of runs: journal schema, database, ingest, imports, queries and reports."""
