"""The network: encoder and head, attention, kernels, and how parameters are spread over ranks."""
