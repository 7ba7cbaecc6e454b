"""Files on disk: home directory, run files, durable writes, file locks, JSON streams."""
