"""Checkpoints: save, verify, keep, load, and export for transformers.

A checkpoint holds the named parts of an app_state (`Stateful` objects) without knowing what they are. `checkpointer` is
what training uses; `async_writer` writes a copy (`staging`) in a thread; `manifest` is what makes it whole; `retention`
decides which ones stay; `export` writes the trained model in Hugging Face form.
"""
