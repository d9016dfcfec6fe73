"""Typed sync and async clients. They import types, errors and httpx, but no model library."""

from gliner_bento.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
