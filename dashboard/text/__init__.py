"""How pages and figures write values, labels and recorded settings."""
