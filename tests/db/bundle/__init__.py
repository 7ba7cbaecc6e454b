"""Export and import of runs as bundles."""
