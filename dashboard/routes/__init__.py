"""One file a page: query, then figure or template."""
