"""How pages and figures write values and labels."""
