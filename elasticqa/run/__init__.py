"""The run directory: its journal, its lock, its other files, and the writers of them."""
