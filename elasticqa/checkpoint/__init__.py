"""Checkpoints: save, verify, keep, load, and export for transformers."""
