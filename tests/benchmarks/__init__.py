"""Benchmarks on small models: their scripts run, and their tables are those of the results."""
