"""From a hub id or a folder to gliner's model: finding, checking and loading. Runs no code from a checkpoint."""
