"""Options of a training run with defaults and ranges, recipes, batch plan, and environment variables."""
