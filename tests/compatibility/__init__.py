"""Runs, checkpoints and databases of earlier versions still open, resume and migrate."""
