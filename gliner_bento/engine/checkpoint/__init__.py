"""Finds, checks and loads a checkpoint: a hub id, a folder or an archive. Runs no code from a checkpoint."""
