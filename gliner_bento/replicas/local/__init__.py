"""The replicas of this process, and the models that it loads, evicts and unloads."""
