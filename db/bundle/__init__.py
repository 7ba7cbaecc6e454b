"""Bundles: a run directory in one file, written by `elasticqa export` and restored by `elasticqa import`."""
