"""Measures one running server over HTTP: workloads and a load generator. Does not import torch."""
