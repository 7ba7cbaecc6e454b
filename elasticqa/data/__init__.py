"""From a data set to the batches of one rank."""
