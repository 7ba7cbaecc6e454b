"""Run directory: journal, metrics, recorder and samples of the system."""
