"""Queries of the database, and statistics over their rows."""
