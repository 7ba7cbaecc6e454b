"""What is handed to TorchX: the components that start a run, and the scheduler for Slurm."""
