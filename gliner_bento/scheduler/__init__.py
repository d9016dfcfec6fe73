"""Continuous batching over an engine. Sees `engine.base` and `errors` alone: no HTTP, no torch, no metrics library."""
