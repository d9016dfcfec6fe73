"""Measures the promises of docs/measurements.md on a server that it starts: overload, fuzzing, a soak."""
