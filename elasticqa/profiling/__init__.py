"""Profiling: trace some training steps with torch.profiler, and summarize traces."""
