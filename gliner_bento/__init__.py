"""gliner-bento: serves GLiNER models as a BentoML bundle. See docs/architecture.md for the map."""

__version__ = "0.1.0"
