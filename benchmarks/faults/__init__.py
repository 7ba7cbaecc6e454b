"""Real runs under faults: what they cost and what they lose."""
