"""What several benchmarks share: small runs, models, facts of the machine."""
