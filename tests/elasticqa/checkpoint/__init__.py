"""Saving, retaining, loading and exporting checkpoints."""
