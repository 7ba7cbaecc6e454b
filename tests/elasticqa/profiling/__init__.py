"""The step profiler."""
