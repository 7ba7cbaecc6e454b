"""The network: encoder and head, attention, Triton kernels, and how it is parallelized and accelerated."""
