"""A scaling study: a matrix of configurations, repeated, through TorchX; its file is the truth and survives kills."""
