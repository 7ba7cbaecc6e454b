"""Pages over the record: runs, one run, speedup, throughput."""
