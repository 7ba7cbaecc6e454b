"""Ranks, hosts, network and process group; and torch's private interface."""
