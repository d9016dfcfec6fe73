"""Typed clients, sync and async. Import types, errors and httpx only: no model library is needed to call a server."""

from gliner_bento.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
