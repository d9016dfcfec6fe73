"""Sends one request to a gateway in this process."""

import asyncio


def ask(client, method, path, **kwargs):
    """The response to a request."""
    return asyncio.run(client.request(method, path, **kwargs))


def ask_json(client, path, body=None, **kwargs):
    """The response to a POST of a body, or to a GET."""
    return ask(client, "GET" if body is None else "POST", path, json=body, **kwargs)
