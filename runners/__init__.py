"""BentoML services that hold models."""
