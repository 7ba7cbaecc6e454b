"""Profiler traces: recorded over a few steps, and summarized."""
