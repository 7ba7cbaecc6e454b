"""Elastic training: agents, health checks, failures and shutdown."""
