"""Runs under injected faults, and the harness that injects them."""
