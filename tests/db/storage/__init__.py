"""Home directory and file locks."""
