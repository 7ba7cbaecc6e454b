"""Kernels, CUDA graphs and training on GPUs."""
