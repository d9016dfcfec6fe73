"""The parts of a Word or Excel file, which is an archive of XML files."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from lxml import etree

from gliner_bento.documents.base import DocumentError, DocumentTooLarge, Limits

_TYPES = "[Content_Types].xml"
_OLD_FORMAT = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MAIN = {"wordprocessingml.document.main": "docx", "spreadsheetml.sheet.main": "xlsx"}
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Relationship:
    """A link from a part. kind: the last word of its type. target: a part's name, or an address if it is external."""

    id: str
    kind: str
    target: str
    external: bool


class Package:
    """A file with all its parts, unpacked. Raises `DocumentError` for what is not a Word or Excel file, and for one
    that is too large."""

    def __init__(self, content: bytes, limits: Limits) -> None:
        if content.startswith(_OLD_FORMAT):
            raise DocumentError("encrypted, or of an old format (.doc, .xls)")
        try:
            self.parts = dict(_unpacked(content, limits))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, UnicodeError) as error:
            raise DocumentError(f"damaged: {' '.join(str(error).split())}") from None
        if _TYPES not in self.parts:
            raise DocumentError("an archive, and no Word or Excel file")
        types = self.tree(_TYPES)
        self._types = {
            node.get("PartName", "").lstrip("/").lower(): node.get("ContentType", "")
            for node in types.iter("{*}Override")
        }
        self._default_types = {
            node.get("Extension", "").lower(): node.get("ContentType", "") for node in types.iter("{*}Default")
        }
        mains = [
            relationship.target for relationship in self.relationships("") if relationship.kind == "officeDocument"
        ]
        self.main = mains[0] if mains and mains[0] in self.parts else ""
        main_type = self.type_of(self.main)
        self.kind = next((kind for name, kind in _MAIN.items() if name in main_type), "")

    def type_of(self, name: str) -> str:
        """The content type of a part, such as `application/vnd...styles+xml`."""
        suffix = name.rpartition(".")[2].lower()
        return str(self._types.get(name.lower()) or self._default_types.get(suffix, ""))

    def tree(self, name: str) -> Any:
        """The root of a part, without comments and processing instructions, which divide texts and may be texts.

        Raises `DocumentError` for invalid XML, and for a DOCTYPE, which no such file has.
        """
        parser = etree.XMLParser(
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        try:
            root = etree.fromstring(self.parts[name], parser)
        except etree.XMLSyntaxError as error:
            if error.code == etree.ErrorTypes.ERR_NO_MEMORY:
                raise MemoryError from None
            raise DocumentError(f"damaged: {name}: {' '.join(str(error).split())}") from None
        if root is None or root.getroottree().docinfo.doctype:
            raise DocumentError(f"{name} has a DOCTYPE")
        return root

    def relationships(self, part: str) -> list[Relationship]:
        """The links of a part; of the file itself for an empty name."""
        folder, base = posixpath.split(part)
        links = posixpath.join(folder, "_rels", f"{base}.rels")
        if links not in self.parts:
            return []
        found = []
        for node in self.tree(links).iter("{*}Relationship"):
            target, external = node.get("Target", ""), node.get("TargetMode") == "External"
            if not external:
                target = posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")
            kind = node.get("Type", "").rpartition("/")[2]
            found.append(Relationship(node.get("Id", ""), kind, target, external))
        return found

    def linked(self, part: str, kind: str) -> Iterator[str]:
        """The parts of a kind that a part has links to."""
        for relationship in self.relationships(part):
            if relationship.kind == kind and not relationship.external and relationship.target in self.parts:
                yield relationship.target

    def written(self, changed: Mapping[str, bytes], removed: Collection[str] = ()) -> bytes:
        """The file with other contents of some parts, and without some."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.parts.items():
                if name not in removed:
                    info = zipfile.ZipInfo(name, _DATE)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(info, changed.get(name, content))
        return out.getvalue()


def xml_of(root: Any) -> bytes:
    """A part as bytes."""
    content: bytes = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
    return content


def local(element: Any) -> str:
    """The name of an element without its namespace: the transitional and the strict form have different ones. Empty for
    None, the parent of a root."""
    tag = None if element is None else element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _unpacked(content: bytes, limits: Limits) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > limits.max_parts:
            raise DocumentTooLarge(f"has more than {limits.max_parts:,} parts")
        if len({entry.filename.lower() for entry in entries}) < len(entries):
            raise DocumentError("damaged: two parts have one name")
        left = limits.max_unpacked_bytes
        for entry in entries:
            if entry.flag_bits & 1:
                raise DocumentError("encrypted")
            with archive.open(entry) as file:
                part = file.read(left + 1)
            left -= len(part)
            if left < 0:
                raise DocumentTooLarge(f"has more than {limits.max_unpacked_bytes // 2**20} MiB when unpacked")
            yield entry.filename, part
