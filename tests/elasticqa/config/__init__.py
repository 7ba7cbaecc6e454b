"""Configuration, recipes and options."""
