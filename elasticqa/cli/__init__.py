"""The command line: one module per command; its main(argv) returns the exit status."""
