"""Speed of training and evaluation, compared with the Hugging Face Trainer and Lightning."""
