"""Facts of ranks, hosts and the network, and the process group of the ranks."""
