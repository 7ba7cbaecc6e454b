"""Batches: data sets, tokenizers, sampler and prefetcher."""
