"""What runs beside the requests: the ingest thread, and groups of repeats kept between requests."""
