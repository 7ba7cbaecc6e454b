"""Jobs on a real two-node Slurm cluster."""
