"""The run directory: its journal, its lock, its files, and what is written there while training."""
