"""Tests of the training package, in the folders of its packages."""
