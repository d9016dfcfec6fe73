"""gliner-bento: a server for GLiNER models. See docs/architecture.md for an overview."""

__version__ = "0.1.0"
