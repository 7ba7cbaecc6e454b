"""Real runs under injected faults: recovery times and losses of data."""
