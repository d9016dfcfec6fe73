"""Measures one running server over HTTP: workloads and a load generator. Loads no torch."""
