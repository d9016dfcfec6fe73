"""What the clients send of an adapter that is here: a file as it is, a folder as an archive."""

from __future__ import annotations

import asyncio
import io
import zipfile

import httpx
import pytest

from gliner_bento.client import AsyncClient, Client

CARD = {
    "id": "a",
    "source": "upload",
    "rank": 4,
    "targets": [],
    "bytes": 3,
    "tier": "cpu",
    "pinned": True,
    "uses": 0,
    "last_used": None,
}


class Server:
    """Notes each request whole, and answers with a card."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(201, json=CARD)

    async def read_and_answer(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self.answer(request)


def put(kind, server, *args, **options):
    """Put an adapter with a client of this kind; the request as it arrived."""
    if kind is Client:
        with Client("http://test") as client:
            client._http = httpx.Client(transport=httpx.MockTransport(server.answer), base_url="http://test")
            card = client.put_adapter(*args, **options)
    else:

        async def scene():
            async with AsyncClient("http://test") as client:
                transport = httpx.MockTransport(server.read_and_answer)
                client._http = httpx.AsyncClient(transport=transport, base_url="http://test")
                return await client.put_adapter(*args, **options)

        card = asyncio.run(scene())
    assert card.id == "a"
    return server.requests[-1]


@pytest.fixture
def server():
    return Server()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_file_is_sent_as_it_is(kind, server, tmp_path):
    content = bytes(range(256)) * 6 * 2**10  # 1.5 MiB
    file = tmp_path / "a.zip"
    file.write_bytes(content)
    request = put(kind, server, "a", file, pinned=True)
    assert (request.method, request.url.path, request.content) == ("PUT", "/v1/adapters/a", content)
    assert dict(request.url.params) == {"pinned": "true", "preload": "true"}
    assert request.headers["content-length"] == str(len(content))
    assert "content-type" not in request.headers
    assert "transfer-encoding" not in request.headers


@pytest.mark.parametrize("weights", ["adapter_model.safetensors", "adapter_weights.safetensors"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_folder_is_sent_as_an_archive_of_the_adapters_two_files(kind, weights, server, tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / weights).write_bytes(b"weights")
    (tmp_path / "optimizer.pt").write_bytes(b"not sent")
    request = put(kind, server, "a", tmp_path)
    with zipfile.ZipFile(io.BytesIO(request.content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "adapter_config.json": b"{}",
            weights: b"weights",
        }
    assert request.headers["content-length"] == str(len(request.content))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_folder_with_pickled_weights_is_not_sent_and_the_error_says_what_to_do(kind, server, tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(FileNotFoundError, match=r"adapter_model\.bin is never unpickled; save it as safetensors"):
        put(kind, server, "a", tmp_path)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_source_is_sent_as_json_and_options_without_a_body(kind, server):
    request = put(kind, server, "a", "tenant-a", preload=False)
    assert (request.headers["content-type"], request.content) == (
        "application/json",
        b'{"source":"tenant-a","preload":false}',
    )
    request = put(kind, server, "a", pinned=False)
    assert (request.content, dict(request.url.params)) == (b"", {"pinned": "false", "preload": "true"})
    request = put(kind, server, "a", "tenant-a", replace=True)
    assert request.content == b'{"source":"tenant-a","preload":true,"replace":true}'


def test_a_folder_without_an_adapter_is_named_before_anything_is_sent(server, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json"):
        put(Client, server, "a", tmp_path)
    assert server.requests == []
