"""The command line: one module per command; each has main(argv), which returns the exit code."""
