"""Measures the promises of docs/reliability.md on a server that it starts: overload, fuzzing, a soak."""
