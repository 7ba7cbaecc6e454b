"""One module a subcommand; each has main(argv), which returns the exit status."""
