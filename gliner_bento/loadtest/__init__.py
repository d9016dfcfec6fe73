"""Measures one running server over HTTP: workloads, a load generator, a table of the results. Loads no torch."""
