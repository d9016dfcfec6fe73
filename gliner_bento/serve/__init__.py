"""The Python interface of `gliner.serve`: a program changes its import, and nothing else.

Importing this package loads no model library."""

from gliner_bento.serve.client import GLiNERClient, GLiNERClientError, get_client
from gliner_bento.serve.config import GLiNERServeConfig
from gliner_bento.serve.factory import GLiNERFactory, serve, shutdown

__all__ = [
    "GLiNERClient",
    "GLiNERClientError",
    "GLiNERFactory",
    "GLiNERServeConfig",
    "get_client",
    "serve",
    "shutdown",
]
