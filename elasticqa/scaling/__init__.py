"""The scaling study: a matrix of configurations, run repeatedly as TorchX jobs and resumable from its file."""
