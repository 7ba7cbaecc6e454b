"""The TorchX scheduler `slurm` of this project: one ordinary, elastic, requeueable allocation a job."""
