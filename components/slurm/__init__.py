"""The TorchX scheduler `slurm`: each job is one sbatch allocation, which may be elastic and can be requeued."""
