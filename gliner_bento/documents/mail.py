"""Texts of a mail: subject and addresses, body, attachments of the known formats, messages inside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from gliner_bento.documents.base import Collector, DocumentError, DocumentTooLarge, cut
from gliner_bento.documents.html import texts_of

_HEADERS = ("Subject", "From", "To", "Cc", "Bcc", "Date")
_BODIES = ("text/plain", "text/html")
_TEXT_SUFFIXES = (".txt", ".md")
_NO_MAIL = "is no mail: it has no header such as From or Subject"

ReadAttachment = Callable[[str, bytes, Collector, str], None]
"""Adds the records of a document: its name, content, the collector, and its name in the mail."""


def read_mail(content: bytes, collector: Collector, read: ReadAttachment, *, attachment: str | None = None) -> None:
    """Add a record with the headers, one with the body, and those of attachments and of messages inside.

    Of the body, the plain text is taken if there is one, else the HTML. Raises `DocumentError`.
    """
    message = message_from_bytes(content, policy=policy.default)
    if not any(name in message for name in _HEADERS):
        raise DocumentError(_NO_MAIL)
    _Mail(collector, read).add(message, attachment)


class _Mail:
    def __init__(self, collector: Collector, read: ReadAttachment) -> None:
        self._collector, self._read = collector, read
        self._parts = 0

    def add(self, message: EmailMessage, attachment: str | None) -> None:
        """Add all records of a message."""
        limits = self._collector.limits
        if self._collector.depth > limits.max_depth:
            raise DocumentTooLarge(f"is inside more than {limits.max_depth} other messages")
        self._collector.depth += 1
        try:
            self._add(message, attachment)
        finally:
            self._collector.depth -= 1

    def _add(self, message: EmailMessage, attachment: str | None) -> None:
        headers = [f"{name}: {value}" for name in _HEADERS for value in _values(message, name)]
        if headers:
            self._collector.add("\n".join(headers), "headers", attachment=attachment)
        body = _body(message)
        if body is not None:
            self._collector.add(_text(body), "body", attachment=attachment)
        for part in _others(message, body):
            self._parts += 1
            if self._parts > self._collector.limits.max_parts:
                raise DocumentTooLarge(f"has more than {self._collector.limits.max_parts:,} attachments")
            self._attachment(part, f"{attachment}/" if attachment else "")

    def _attachment(self, part: EmailMessage, prefix: str) -> None:
        """Add the records of an attachment; note one that cannot be read."""
        is_message = part.get_content_type() == "message/rfc822"
        name = prefix + _name(part, ".eml" if is_message else "")
        before, records = len(self._collector.document.records), self._collector.document.records
        try:
            if is_message:
                self._message(part, name)
            elif _is_text(part, _suffix(name)):
                self._collector.add(_text(part), "body", attachment=name)
            else:
                self._read(name, _bytes(part), self._collector, name)
        except (DocumentError, RecursionError, *_FAULTS) as error:
            del records[before:]
            reason = str(error) if isinstance(error, DocumentError) else f"damaged: {type(error).__name__}"
            self._collector.not_read(name, reason)

    def _message(self, part: EmailMessage, name: str) -> None:
        payload = part.get_payload()
        inner = payload[0] if isinstance(payload, list) and payload else None
        if not isinstance(inner, EmailMessage):
            raise DocumentError(_NO_MAIL)
        self.add(inner, name)


_FAULTS = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""What the package email raises for damaged messages."""


def _values(message: EmailMessage, name: str) -> Iterator[str]:
    """The values of a header, decoded if that works."""
    try:
        values = [str(value) for value in message.get_all(name, [])]
    except _FAULTS:
        values = [str(value) for key, value in message.raw_items() if key.lower() == name.lower()]
    yield from (" ".join(value.split()) for value in values if value.strip())


def _body(message: EmailMessage) -> EmailMessage | None:
    try:
        body = message.get_body(("plain", "html"))
    except _FAULTS:
        body = None
    if isinstance(body, EmailMessage) and not body.is_multipart():
        return body
    is_text = message.get_content_maintype() == "text" and not message.is_multipart()
    return message if is_text and not message.is_attachment() else None


def _others(message: EmailMessage, body: EmailMessage | None) -> Iterator[EmailMessage]:
    """The parts besides the body; not the other forms of the body, and not what is inside an inner message."""
    if message is body:
        return
    if not message.is_multipart() or message.get_content_type() == "message/rfc822":
        yield message
        return
    stack = [message]
    while stack:
        part = stack.pop()
        payload: Any = part.get_payload()
        children = payload if isinstance(payload, list) else []
        has_body = part.get_content_type() == "multipart/alternative" and any(child is body for child in children)
        found = []
        for child in children:
            if child is body or not isinstance(child, EmailMessage):
                continue
            if child.get_content_maintype() == "multipart":
                found.append(child)
            elif not (has_body and child.get_content_type() in _BODIES and not child.is_attachment()):
                yield child
        stack += reversed(found)


def _name(part: EmailMessage, suffix: str) -> str:
    """The name of an attachment, without folders; a name of our own if it has none."""
    try:
        given = part.get_filename() or ""
    except _FAULTS:
        given = ""
    name = os.path.basename(given.replace("\\", "/").replace("\x00", "")).strip() or "attachment"
    return cut(name if suffix and name.lower().endswith(suffix) else name + suffix)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _is_text(part: EmailMessage, suffix: str) -> bool:
    """Whether an attachment is a text by its suffix, or, without one, by its type."""
    return suffix in _TEXT_SUFFIXES or (not suffix and part.get_content_type() in _BODIES)


def _bytes(part: EmailMessage) -> bytes:
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _text(part: EmailMessage) -> str:
    """The text of a part, with U+FFFD for bytes that are not of its encoding."""
    try:
        charset = part.get_content_charset() or "utf-8"
        text = _bytes(part).decode(charset, "replace")
    except (LookupError, ValueError):
        text = _bytes(part).decode("utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\x00", "")
    if part.get_content_type() == "text/html":
        return texts_of(text)[1] if text.strip() else ""
    return text
