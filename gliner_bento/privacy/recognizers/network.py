"""Addresses: e-mail, IP, MAC, URL, and cryptocurrency wallets."""

from __future__ import annotations

import ipaddress
import re
from string import ascii_lowercase, digits

from gliner_bento.privacy.recognizers.base import Rule, number
from gliner_bento.privacy.recognizers.spelled import DOMAINS

_NOT_IP = re.compile(  # right before a number: it is a version or section, not an IP address
    r"(?i)(?:\bv|\b(?:version|ver|release|build|section|sections|chapter|oid|firmware|rev)[. :]{1,3})$"
)


def _ip(match: re.Match[str]) -> tuple[int, int] | None:
    """[start, end) of an IP address, including a prefix length (/24); None if it is invalid, or a version number."""
    text = re.sub(r"(?<![^.])0+(?=\d)", "", match["ip"]) if "." in match["ip"] else match["ip"]  # 192.168.017.034
    end = match.end("ip")
    if not text.strip(":") or (text.endswith(":") and not text.endswith("::")):
        return None
    if re.fullmatch("[A-Fa-f]+::[A-Fa-f]+", text):  # a name in code, such as a::b
        return None
    try:
        address = ipaddress.ip_address(text)
        if match["bits"] and int(match["bits"]) <= address.max_prefixlen:
            end = match.end()
    except ValueError:
        return None
    if _NOT_IP.search(match.string, max(0, match.start() - 12), match.start()):
        return None
    return match.start(), end


def _url(match: re.Match[str]) -> tuple[int, int]:
    """[start, end) of a URL, without the punctuation after it, and without a closing bracket that it does not open."""
    text = match[0]
    while text and (text[-1] in ".,;:!?'\"*_" or (text[-1] == ")" and text.count(")") > text.count("("))):
        text = text[:-1]
    return match.start(), match.start() + len(text)


RULES = (
    Rule(
        "EMAIL_ADDRESS",
        r"(?<![\w+])(?<![\w+][.\-])(?:[\w+][\w.!#$%&'+^`{|}~\-]{0,63}|\"[^\"\n@]{1,64}\")@(?:\[(?:IPv6:)?[\dA-Fa-f:.]{3,39}\]|"
        r"(?:[^\W_](?:[\w\-]{0,61}[^\W_])?\.)+(?:[xX][nN]--[\w\-]{1,58}[^\W_]|[^\W\d_]{2,24})(?![^\W_]))",
        1.0,
        "email,e-mail,mail",
        flags=0,
        sign="@",
        reach=66,
    ),
    Rule(
        "IP_ADDRESS",
        r"(?<![\w.])(?P<ip>(?:\d{1,3}\.){3}\d{1,3})(?:/(?P<bits>\d{1,3}))?(?![^\W_])(?!\.\d)",
        0.6,
        "ip,ipv4,address,host,server",
        name="IPv4",
        span=_ip,
    ),
    Rule(
        "IP_ADDRESS",
        r"(?<![\w.])(?<![\dA-Fa-f:]:)(?P<ip>(?=[\dA-Fa-f]{0,4}:[\dA-Fa-f]{0,4}:)[\dA-Fa-f:]{2,39}(?:(?<=:)(?:\d{1,3}\.){3}\d{1,3})?(?:%\w{1,16})?)"
        r"(?:/(?P<bits>\d{1,3}))?(?![\w:]|\.\d)",
        0.6,
        "ip,ipv6,address,host,server",
        name="IPv6",
        span=_ip,
        sign=r":(?=[\dA-Fa-f]{0,4}:)",
        reach=4,
    ),
    Rule(
        "MAC_ADDRESS",
        r"(?<![\w:.\-])(?:[\dA-Fa-f]{2}(?P<mark>[:-])(?:[\dA-Fa-f]{2}(?P=mark)){4}[\dA-Fa-f]{2}|(?:[\dA-Fa-f]{4}\.){2}[\dA-Fa-f]{4})"
        r"(?![\w:\-]|\.\w)",
        0.6,
        "mac,ether,hardware",
        sign=r"[:\-](?=[\dA-Fa-f]{2}[:\-])|\.(?=[\dA-Fa-f]{4}\.)",
        reach=4,
    ),
    Rule(
        "URL",
        r"(?<![^\W_])(?:(?:https?|ftps?)://(?!\[|\d+\.\d+\.)[^\s<>\"'`]{2,2000}|www\.[^\s<>\"'`]{3,2000})",
        0.6,
        "url,website,link,site",
        flags=re.IGNORECASE,
        span=_url,
        sign=r":(?=//)|\.(?<=www\.)",
        reach=5,
    ),
    Rule(
        "URL",  # of a host that is an IP address, which has a higher score; of any scheme, with a name and a password
        r"(?<![^\W_])(?:(?:https?|ftps?)://(?=\[|\d+\.\d+\.)|[a-z][a-z0-9+.\-]{1,19}://[^\s<>\"'`/@]{1,200}@)[^\s<>\"'`]{2,2000}",
        0.5,
        "url,website,link,site",
        flags=re.IGNORECASE,
        span=_url,
        sign="://",
        reach=20,
    ),
    Rule(
        "URL",
        rf"(?<![\w@.\-/])(?:[a-z0-9](?:[a-z0-9-]{{0,61}}[a-z0-9])?\.){{1,4}}(?:{DOMAINS})(?![\w@-])(?!\.\w)"
        r"(?:(?::\d{1,5})?[/?#][^\s<>\"'`]{0,2000})?",
        0.5,
        "url,website,link,site",
        flags=re.ASCII,
        span=_url,
        sign=rf"\.(?:{DOMAINS})(?![\w@-])(?!\.\w)",
        reach=255,
        before=ascii_lowercase + digits + ".-",
    ),
    number(
        "CRYPTO", r"[13][1-9A-HJ-NP-Za-km-z]{25,34}|(?:bc1|BC1)[02-9a-zA-Z]{11,87}", "bitcoin", 1.0, "wallet,bitcoin"
    ),
    number("CRYPTO", r"0x[\da-fA-F]{40}|bc1p[02-9ac-hj-np-z]{58}", "", 0.5, "wallet,eth,ethereum,crypto"),
)
