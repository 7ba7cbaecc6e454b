"""The database and the dashboard on PostgreSQL."""
