"""Training and evaluation speed, beside the Hugging Face Trainer and Lightning."""
