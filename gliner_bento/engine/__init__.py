"""The model: from a checkpoint and an item to a result."""
