"""TorchX plug-ins: the components that start a training run, and the Slurm scheduler."""
