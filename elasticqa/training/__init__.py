"""The training loop, its step, and everything one rank does from start to end."""
