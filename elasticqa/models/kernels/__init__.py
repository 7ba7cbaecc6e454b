"""GPU kernels in Triton; the modules that offer them as operators import them where Triton is installed."""
