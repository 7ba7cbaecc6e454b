"""Import of results of other trainers."""
