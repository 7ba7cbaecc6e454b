"""Exit statuses of our processes, and who reads them."""

FAILED = 1
BAD_REQUEST = 2
"""The same start would be refused again; Slurm jobs are not queued again after it."""
PEER_LOST = 75
"""EX_TEMPFAIL: a worker ended because of another; torchrun starts the group again."""
STORE_LOST = 76
"""The rendezvous is lost or not to be had: the same command, on every node, goes on from the last checkpoint."""
STOPPED = 143
"""128 + SIGTERM: asked to stop, and saved. A scheduler reads it as the end that it asked for, where torchrun's own
status would be 1, as after a failure."""
