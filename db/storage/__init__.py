"""Where the record lies on disk: the home directory, its runs, and files that appear as a whole."""
