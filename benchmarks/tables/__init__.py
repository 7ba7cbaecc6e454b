"""From raw results to the tables of README.md."""
