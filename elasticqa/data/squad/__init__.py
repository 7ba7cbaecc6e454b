"""SQuAD v1.1: read files, build features, compute answers, score them."""
