"""Agents, failure detection, preflight checks and shutdown."""
