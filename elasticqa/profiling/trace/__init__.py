"""Profiler traces: read as a stream, summarized without torch."""
