"""Commands, links and tables of the documentation."""
