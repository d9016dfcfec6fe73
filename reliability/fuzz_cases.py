"""Requests that nobody should send, and some that are merely unusual, made from the OpenAPI document and a seed."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
UNDOCUMENTED = ("/", "/docs.json", "/livez", "/readyz", "/healthz", "/metrics", "/schema.json", "/static_content/x.css")
"""Routes of the framework and the pages."""

_NAMES = (
    "",
    "a",
    "..",
    "%2e%2e",
    "%00",
    "%0a",
    "%0d%0aX-Evil:%201",
    "a%2fb",
    "%ff%fe",
    "🐍",
    "a b",
    "'\"<>",
    "\\",
    ";",
)
_NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 0.5, -0.0, 1e-320, 1e308, 2**31, -(2**63), 2**64, 10**400),
    *(float("nan"), float("inf"), float("-inf")),
)
_STRINGS = (
    *(
        "",
        " ",
        "\x00",
        "\n\r\t",
        "a" * 5000,
        "\ud800",
        "\udfff\ud800",
        "\ufeffTim Cook",
        "👩‍👩‍👧‍👦" * 50,
        "e\u0301" * 200,
    ),
    *("\u202eTim Cook works at Apple", "Ⅷ ﬁ İ ß", "a-" * 3000, "张三在北京工作" * 40, "__proto__", "null", "1", "true"),
)
_CONTENT_TYPES = (
    *("application/json", "application/json; charset=utf-16", "APPLICATION/JSON", "application/problem+json"),
    *("text/plain", "application/xml", "multipart/form-data", "multipart/form-data; boundary=", "application/msgpack"),
    *("application/x-www-form-urlencoded", "application/zip", "", "/", ";;;", "application/json" * 100, "é/ü"),
)
_HEADERS = (
    *("Accept: application/xml", "Accept-Encoding: gzip;q=x", "Content-Encoding: gzip", "Expect: 100-continue"),
    *("Authorization: Bearer \x7f", "Authorization: Basic ====", "Cookie: " + "a=b; " * 200, "Range: bytes=9-1"),
    *("X-Request-ID: " + "x" * 3000, "X-Request-ID: a\tb", "X-Request-ID: é", "X-Request-ID: ", "Origin: null"),
    *("Host: other.example", "Connection: upgrade", "Upgrade: websocket", "X-Forwarded-For: ::1, ';--", "TE: trailers"),
    *("traceparent: 00-zz-yy-01", "X-Large: " + "y" * 20_000, "If-None-Match: *", "Content-Length: 3"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One connection: the bytes to send. whole: they are a request that HTTP allows, so it has to be answered."""

    kind: str
    method: str
    data: bytes
    whole: bool = True


class Cases:
    """A sequence of cases. document: the server's OpenAPI document."""

    def __init__(self, document: Mapping[str, Any], seed: int) -> None:
        self._rng = random.Random(seed)
        operations = [
            (path, method.upper(), operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self._paths = [*dict.fromkeys(path for path, _, _ in operations), *UNDOCUMENTED]
        self._bodies = [
            (path, method, content["application/json"]["example"])
            for path, method, operation in operations
            if "application/json" in (content := operation.get("requestBody", {}).get("content", {}))
        ]
        self._kinds: Mapping[Callable[[], Case], int] = {
            self._fields: 40,
            self._text: 10,
            self._json: 15,
            self._path: 12,
            self._header: 10,
            self._upload: 5,
            self._chunked: 4,
            self._raw: 4,
        }

    def __iter__(self) -> Iterator[Case]:
        kinds, weights = list(self._kinds), list(self._kinds.values())
        while True:
            yield self._rng.choices(kinds, weights)[0]()

    # Kinds

    def _fields(self) -> Case:
        """A body whose fields have values of all types; also missing, unknown and repeated fields."""
        path, method, body = self._example()
        names = [
            *body,
            "threshold",
            "flat_ner",
            "timeout_ms",
            "priority",
            "adapter_id",
            "request_id",
            "long_text",
            "zz",
        ]
        for name in self._rng.sample(names, self._rng.randint(1, 3)):
            if self._rng.random() < 0.15:
                body.pop(name, None)
            else:
                body[name] = self._value(2)
        text = json.dumps(body)
        if self._rng.random() < 0.1:
            text = text[:-1] + f", {json.dumps(self._rng.choice(names))}: {json.dumps(self._value(1))}}}"
        return self._request("fields", method, path, text.encode())

    def _text(self) -> Case:
        """A valid body with unusual texts and labels."""
        path, method, body = self._example()
        if "text" in body:
            body["text"] = " ".join(self._rng.choice(_STRINGS) for _ in range(self._rng.randint(1, 3)))
        body["labels"] = self._rng.sample(_STRINGS[:8], self._rng.randint(1, 4))
        return self._request("text", method, path, json.dumps(body).encode())

    def _json(self) -> Case:
        """What is no JSON, or hardly."""
        path, method, body = self._example()
        text = json.dumps(body).encode()
        at = self._rng.randrange(len(text))
        broken = self._rng.choice(
            [
                text[:at],
                text[:at] + self._rng.randbytes(3) + text[at:],
                text + text,
                b"[" * 5000,
                b'{"text":' * 2000 + b"1",
                b"\xef\xbb\xbf" + text,
                text.decode().encode("utf-16"),
                b'{"text": "\xff\xfe", "labels": ["a"]}',
                b'{"text": "\\ud83d", "labels": ["a"]}',
                b'{"text": "a", "labels": ["a"], "threshold": ' + b"9" * 5000 + b"}",
                b'{"text": "a", "labels": ["a"], "threshold": NaN}',
                b"null",
                b"[]",
                b'""',
                b"",
                b" ",
                self._rng.randbytes(200),
            ]
        )
        return self._request("json", method, path, broken)

    def _path(self) -> Case:
        """Any method on any route, with odd ids, queries and unknown paths."""
        path = self._filled(self._rng.choice(self._paths))
        if self._rng.random() < 0.4:
            path += "/" + self._rng.choice(_NAMES)
        if self._rng.random() < 0.3:
            path += "?" + self._rng.choice(
                ["a=b", "adapter_id=%00", "pinned=maybe", "x" * 3000, "&&==", "replace=true"]
            )
        body = self._rng.choice([b"", b"{}", b"x"])
        return self._request("path", self._rng.choice(METHODS), path, body)

    def _header(self) -> Case:
        """Unusual headers with a valid body."""
        path, method, body = self._example()
        headers = self._rng.sample(_HEADERS, self._rng.randint(1, 3))
        content_type = self._rng.choice(_CONTENT_TYPES)
        sizes_twice = any(header.startswith(("Content-Length", "Connection", "Expect")) for header in headers)
        case = self._request("header", method, path, json.dumps(body).encode(), headers, content_type)
        return Case(case.kind, case.method, case.data, whole=not sizes_twice)

    def _upload(self) -> Case:
        """Adapters that are none, and forms that are none."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as content:
            name = self._rng.choice(["adapter_config.json", "../x", "a" * 300])
            content.writestr(zipfile.ZipInfo(name), self._rng.randbytes(50))  # without the time
        body = self._rng.choice(
            [
                archive.getvalue(),
                archive.getvalue()[:60],
                self._rng.randbytes(300),
                b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n--b",
                b"\x1f\x8b" + self._rng.randbytes(100),
                json.dumps({"source": self._value(1)}).encode(),
            ]
        )
        kinds = ["application/zip", "application/gzip", "multipart/form-data; boundary=b", "application/json", ""]
        path = "/v1/adapters/" + quote(self._rng.choice([*_NAMES, "fuzz-1", "fuzz-2"]), safe="%")
        return self._request("upload", "PUT", path, body, content_type=self._rng.choice(kinds))

    def _chunked(self) -> Case:
        """A body in chunks: right ones, and some that are not."""
        path, method, body = self._example()
        text = json.dumps(body).encode()
        pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        end, whole = self._rng.choice(
            [(b"0\r\n\r\n", True), (b"", False), (b"zz\r\n\r\n", False), (b"-1\r\n\r\n", False)]
        )
        head = self._head(method, path, ["Transfer-Encoding: chunked"], "application/json")
        return Case("chunked", method, head + chunks + end, whole)

    def _raw(self) -> Case:
        """What is no HTTP, and bodies that end early."""
        path, _, body = self._example()
        text = json.dumps(body).encode()
        head = self._head("POST", path, [f"Content-Length: {len(text)}"], "application/json")
        data = self._rng.choice(
            [
                (head + text)[: self._rng.randrange(len(head + text))],
                head.replace(b"POST", b"B@D") + text,
                head.replace(b"HTTP/1.1", b"HTTP/9.9") + text,
                head.replace(b"Content-Length: ", b"Content-Length: -") + text,
                head.replace(b"Content-Length: ", b"Content-Length: x") + text,
                head.replace(b"Content-Length: ", b"Content-Length: 99") + text,
                head.replace(b"Content-Type", b"Content Type\x00") + text,
                b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self._rng.randbytes(100),
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                self._rng.randbytes(200),
            ]
        )
        return Case("raw", "POST", data, whole=False)

    # Parts

    def _example(self) -> tuple[str, str, dict[str, Any]]:
        path, method, body = self._rng.choice(self._bodies)
        return self._filled(path), method, dict(body)

    def _filled(self, path: str) -> str:
        while "{" in path:
            before, _, rest = path.partition("{")
            path = before + quote(self._rng.choice([*_NAMES, "fuzz-1"]), safe="%") + rest.partition("}")[2]
        return path

    def _value(self, depth: int) -> Any:
        kinds: Sequence[Callable[[], Any]] = [
            lambda: self._rng.choice(_NUMBERS),
            lambda: self._rng.choice(_STRINGS),
            lambda: self._rng.choice([None, True, False]),
            lambda: [self._value(depth - 1) for _ in range(self._rng.randint(0, 4))] if depth else [],
            lambda: {self._rng.choice(_STRINGS): self._value(depth - 1) for _ in range(3)} if depth else {},
            lambda: ["a"] * self._rng.choice([1, 300, 1100]),
        ]
        return self._rng.choice(kinds)()

    def _request(
        self,
        kind: str,
        method: str,
        path: str,
        body: bytes,
        headers: Sequence[str] = (),
        content_type: str = "application/json",
    ) -> Case:
        head = self._head(method, path, [f"Content-Length: {len(body)}", *headers], content_type)
        return Case(kind, method, head + body)

    def _head(self, method: str, path: str, headers: Sequence[str], content_type: str) -> bytes:
        path = quote(path, safe="/?&=%;'\"<>\\:@!$()*+,-._~")
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", f"Content-Type: {content_type}"]
        return "\r\n".join([*lines, *headers, "", ""]).encode()
