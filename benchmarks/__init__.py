"""Measurements: one script per table of README.md, in folders by subject."""
