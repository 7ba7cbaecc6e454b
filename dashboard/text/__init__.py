"""How values, names and settings are written on a page."""
