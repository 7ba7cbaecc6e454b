"""Makes the tables of README.md from raw results."""
