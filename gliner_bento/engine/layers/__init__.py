"""Layers over packed matrices: whose the rows are, linear layers with LoRA, kernels, small layers that heads share."""
