"""Headers that limit what a browser does with a response. The policy of a page allows only what the page loads."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from starlette.datastructures import MutableHeaders

INDEX_PAGE = Path(__file__).parent / "pages" / "index.html"
PLAYGROUND_LINK = '<a href="./playground">Open the playground</a>'
"""A link in the index page, which is removed if the playground is disabled."""

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]
"""The headers of every response."""


def secure(headers: MutableHeaders) -> None:
    """Add the headers to those of a response. An HTML page without a policy gets `PAGE_POLICY`."""
    headers.raw.extend(SECURITY_HEADERS)
    if headers.get("content-type", "").startswith("text/html"):
        headers.setdefault("Content-Security-Policy", PAGE_POLICY)


def page_policy(page: str) -> str:
    """The Content-Security-Policy that allows the scripts in a page. Swagger UI and the documentation's theme set
    inline styles, and show images from `data:` URLs."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


PAGE_POLICY = page_policy(INDEX_PAGE.read_text(encoding="utf-8"))
