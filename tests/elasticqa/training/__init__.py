"""The training loop and its parts, and whole training runs."""
