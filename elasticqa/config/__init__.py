"""What a run is asked to do: options with their defaults and ranges, recipes, and the batch plan they imply."""
