"""TorchX components and what their launches ask for."""
