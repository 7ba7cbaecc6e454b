"""Helpers of several tests: sample data, real jobs, and stand-ins for clusters."""
