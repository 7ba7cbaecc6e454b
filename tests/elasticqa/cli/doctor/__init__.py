"""Checks of `elasticqa doctor`."""
