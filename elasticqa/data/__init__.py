"""Data: find models and data sets, build features, and compute the batches of each rank."""
