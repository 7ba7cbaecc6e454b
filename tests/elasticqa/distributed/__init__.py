"""Facts of rank, host and network."""
