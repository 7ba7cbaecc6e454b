"""The Slurm scheduler of TorchX against fake Slurm commands."""
