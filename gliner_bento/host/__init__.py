"""The models of this machine: loads, evicts and unloads them while others serve."""
