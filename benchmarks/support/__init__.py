"""Code that several benchmarks share: options, features, models, small runs, facts of the machine."""
