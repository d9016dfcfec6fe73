"""Layers over packed matrices: row layouts, linear layers, LoRA, kernels, and layers that several heads use."""
