"""The run directory: write and read its journal, annotations, metrics and other files."""
