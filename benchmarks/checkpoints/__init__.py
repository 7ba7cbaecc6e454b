"""Cost of saves, and checkpoints resumed at another world size or strategy."""
