"""The database: engine, models and migrations."""
