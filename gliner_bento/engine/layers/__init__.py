"""Layers over packed matrices: which text a row belongs to, linear layers, LoRA, kernels, layers that heads share."""
