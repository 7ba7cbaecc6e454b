"""Models, attention and parallelism."""
