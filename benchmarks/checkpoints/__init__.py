"""Cost of saves, and checkpoints loaded at another world size."""
