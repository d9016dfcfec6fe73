"""Continuous batching over an engine. Knows only the engine's contract: no HTTP, no torch, no metrics library."""
