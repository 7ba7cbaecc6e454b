"""Checks of a machine before anything trains on it; each stands alone: one may break and the others still run."""
