"""Summaries of profiler traces."""
