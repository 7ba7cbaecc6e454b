"""Elastic, resumable fine-tuning for extractive question answering: the training core and the command line."""
