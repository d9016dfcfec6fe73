"""Measures a server over HTTP, as its users meet it: workloads, a load generator, a server to measure, a report."""
