"""The model: loads checkpoints, and turns items into results."""
