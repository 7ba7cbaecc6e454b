"""Templates and static files."""
