"""EM, F1 and time of whole recipes."""
