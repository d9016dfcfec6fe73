"""Secrets by their form: keys with the prefix of their provider, JSON Web Tokens, private keys, and passwords in URLs
and assignments. Randomness alone is no evidence: hashes, ids and encoded pictures have it too.

The `sign` of each rule begins with a character or word that is rare in texts, so that few places are tried.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode

from gliner_bento.privacy.recognizers.base import Rule

_START, _END = r"(?<![^\W_])", r"(?![^\W_])"
_MAX_TOKEN_CHARS = 16_384  # of a JSON Web Token or a private key


def _last_group(match: re.Match[str]) -> tuple[int, int]:
    """[start, end) of the last group of a match that is not empty; of the whole match if it has none."""
    return match.span(match.lastindex or 0)


def _keys(sign: str, reach: int, *patterns: str) -> Rule:
    """A rule of API keys. sign, reach: see `Rule`. A key is the group of its pattern; without a group, all of it."""
    pattern = f"{_START}(?:{'|'.join(patterns)}){_END}"
    return Rule("API_KEY", pattern, 1.0, sign=sign, reach=reach, span=_last_group)


_KEYS = (
    _keys(
        r"_(?=[A-Za-z0-9]{16})",
        10,
        r"gh[pousr]_[A-Za-z0-9_]{30,255}|github_pat_\w{36,255}",  # GitHub
        r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{16,250}|whsec_[A-Za-z0-9+/]{24,64}={0,2}",  # Stripe
        r"(?:hf|api_org)_[A-Za-z0-9]{30,64}|gsk_[A-Za-z0-9]{40,64}|r8_[A-Za-z0-9]{37,40}",  # Hugging Face, Groq
        r"npm_[A-Za-z0-9]{36}|rubygems_[0-9a-f]{48}|dckr_pat_[\w\-]{27,64}",
        r"do[opr]_v1_[0-9a-f]{64}|shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}|lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}",
    ),
    _keys(
        r"-(?=[A-Za-z0-9][\w\-]{9})",
        9,
        r"sk-(?:proj|svcacct|admin|ant|or)-[\w\-]{20,250}|sk-(?=[A-Za-z]*\d)[A-Za-z0-9]{32,64}",  # OpenAI, Anthropic
        r"xai-[A-Za-z0-9]{60,100}|pplx-[A-Za-z0-9]{40,64}|nvapi-[\w\-]{60,80}",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w\-]{20,300}(?:\.[0-9a-z]{2}\.[0-9a-z]{7,9})?",  # GitLab
        r"(?:xoxe\.)?xox[a-z]-(?=[A-Za-z\-]*\d)[A-Za-z0-9\-]{16,300}|xapp-\d-[A-Za-z0-9\-]{16,300}",  # Slack
        r"pypi-AgE[\w\-]{40,1000}|GOCSPX-[\w\-]{24,40}",
    ),
    _keys(r"A(?:KIA|SIA|BIA|CCA|Iza)", 0, r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}|AIza[\w\-]{33,39}"),  # AWS, Google
    _keys(r"\.(?=[\w\-]{20})", 4, r"SG\.[\w\-]{20,24}\.[\w\-]{39,50}|ya29\.[\w\-]{20,1000}|hv[sb]\.[\w\-]{24,300}"),
    _keys("Key=(?=[A-Za-z0-9+/]{40})", 12, r"(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{40,120}={0,2})"),  # Azure
    _keys("Q~", 4, r"[\w~.\-]{3}\dQ~[\w~.\-]{31,34}"),  # Microsoft Entra
    _keys(":AA", 10, r"\d{8,10}:AA[\w\-]{33}"),  # Telegram
    _keys("hooks\\.slack\\.com/", 0, r"hooks\.slack\.com/services/(T\w{6,14}/B\w{6,14}/\w{16,40})"),
)


def _is_jwt(text: str) -> bool:
    """Whether header and payload are JSON objects, and the header names an algorithm."""
    parts = text.split(".")[:2]
    try:
        header, payload = (json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and isinstance(payload, dict) and "alg" in header


_JWT = Rule(
    "JWT",
    r"(?<![\w\-])e[yw][\w\-]{8,4000}\.[\w\-]{2,10000}\.[\w\-]{0,2000}(?![\w\-])",
    1.0,
    check=_is_jwt,
    sign=r"e(?<![\w\-]e)[yw][AJo0]",  # how {" and { with a blank or a line end begin in base64
    max_chars=_MAX_TOKEN_CHARS,
)


def _has_key(text: str) -> bool:
    """Whether key material is in a block. Code names the first and the last line of one, too."""
    return bool(re.search(r"[A-Za-z0-9+/]{40}", text))


_PRIVATE_KEY = Rule(
    "PRIVATE_KEY",
    r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:"
    r"(?:[^-]|-(?!----)){40,16000}-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:(?:\s|\\[nr]){1,8}[A-Za-z0-9+/=]{40,80})+(?:(?:\s|\\[nr]){1,8}[A-Za-z0-9+/=]{1,39}(?![^\W_]))?)",  # cut off
    1.0,
    check=_has_key,
    sign="-----BEGIN ",
    max_chars=_MAX_TOKEN_CHARS,
)

_NAME = "(?:passw(?:or)?d|passwort|passphrase|pass|pwd)"
_STANDS_FOR = re.compile(
    rf"(?i:(?:(?:your|my|new|old|user|the|db|some|current|confirm)[_\-]?)?{_NAME}s?(?:[_\-]?(?:here|hash|confirm|field))?"
    r"|str|string|text|bytes|bool(?:ean)?|integer|none|null|nil|true|false|undefined|optional|required|hidden|input"
    r"|redacted|default|empty|prompt|.*\spassw.*|.*passw.*\s.*)|[.*xX\-_]+"
    r"|arn:[a-z\-]+:.*"
    rf"|.*(?:\{{.*\}}|\$\(|%[s(]|<.+>|://).*|\$(?:[A-Z\d_]+|(?i:\w*{_NAME}\w*))|%\w+%"
)
"""What is written instead of a password: its name, a type, stars, the name of a policy, and a place that a program
fills."""
_NAME_BEFORE = re.compile(r"\w{0,40}\Z")
_DIRECTORY_NAMES = ("PWD", "OLDPWD", "pwd", "oldpwd")
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:\.\w+)+|(?i:(?:pass\w{0,4}|pwd|sha|md|base|utf|bcrypt|scrypt|pbkdf)[_\-]?\d{1,4})|0x\w+|\d{1,5}"
)
"""Variables, names of algorithms, and sizes, which may be where an unquoted password may be."""
_PASS = re.compile("(?i:pass)(?![A-Za-z])")
"""A name that is also a word of prose and code, so that its values must be quoted."""
_NAME_END = r"(?:[_\-]?\d{1,2})?\\?[\"']?\]?"
_ASSIGNED = r"[ \t]{0,8}(?::[ \t]{0,4}str[ \t]{0,4}=|=>|:=|==?|:)[ \t]{0,8}"
_QUOTED = r"[bru]?(?P<quote>\\?[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\r\n]){{{},200}})(?P=quote)"
_UNQUOTED = r"(?P<plain>(?:[^\s\"'`(){{}}\[\]<>,;&|\\]|&(?!\w+=)){{{},128}})(?=[\s\"'`,;&|\\)}}\]<]|\Z)"


def _password(match: re.Match[str]) -> tuple[int, int] | None:
    """[start, end) of the value that is assigned to a password, or of the password in a URL; None if it is none."""
    kind = match.lastgroup or ""
    text = match[kind]
    if _STANDS_FOR.fullmatch(text) or _is_other_value(text, match):
        return None
    if kind == "plain" and not _is_plain_password(text, match):
        return None
    return match.span(kind)


def _is_other_value(text: str, match: re.Match[str]) -> bool:
    """Whether a value is a working directory, or the name of its constant, as in `LOGIN_PASSWORD = "loginPassword"`."""
    if "name" not in match.re.groupindex or not match["name"]:
        return False
    before = _NAME_BEFORE.search(match.string, max(0, match.start() - 40), match.start())
    name = (before[0] if before else "") + match["name"]
    if name in _DIRECTORY_NAMES:
        return text.startswith("/")
    return not _is_in_environment(match) and name.replace("_", "").lower() == text.lower()


def _is_in_environment(match: re.Match[str]) -> bool:
    """Whether a value is assigned as in a `.env` file: `PASSWORD=value`, with or without quotes."""
    start = match.start(match.lastgroup or "")
    before = match.string[match.start() : start].rstrip("\"'`")
    return before.isupper() and before.endswith("=")


def _is_plain_password(text: str, match: re.Match[str]) -> bool:
    """Whether an unquoted value may be a password. Most are variables in code, and words in an environment."""
    if _CODE.fullmatch(text) or _PASS.match(match[0]):
        return False
    return bool(re.search(r"[\d!@#^*+?~$%]", text)) or (_is_in_environment(match) and text.isalnum())


_AWS_SECRET_CHARS = 40
"""One in 25 of AWS's secret keys has less than three digits."""


def _named_key(match: re.Match[str]) -> tuple[int, int] | None:
    """[start, end) of the value that is assigned to an API key, if letters and digits are in it."""
    kind = match.lastgroup or ""
    text = match[kind]
    is_mixed = len(re.findall(r"\d", text)) > 2 and len(re.findall("[A-Za-z]", text)) > 2
    is_mixed |= len(text) == _AWS_SECRET_CHARS and all(re.search(chars, text) for chars in ("[a-z]", "[A-Z]", r"\d"))
    return match.span(kind) if is_mixed and re.fullmatch(r"[\w\-/+=.~]+", text) and "://" not in text else None


_PASSWORDS = (
    Rule(
        "PASSWORD",
        rf"(?P<name>(?i:pass(?:word|wd|wort|phrase|code)|pwd|(?<![^\W_])pass)){_NAME_END}"
        rf"(?:{_ASSIGNED}(?:{_QUOTED.format(3)}|{_UNQUOTED.format(6)})|>(?P<element>[^<>\s]{{4,128}})</)",
        1.0,
        span=_password,
        sign=r"[pP](?:[aA][sS][sS]|[wW][dD])",
    ),
    Rule(
        "PASSWORD",
        rf"{_START}[A-Za-z][A-Za-z0-9+.\-]{{1,19}}://[^\s:/@?#\"'<>`]{{0,100}}:(?P<url>[^\s/\"'<>`]{{3,200}})@(?=[\w\[])",
        1.0,
        span=_password,
        sign="://",
        reach=20,
    ),
    Rule(
        "PASSWORD",
        rf"{_START}curl[ ][^\n]{{0,200}}?(?<=\s)(?:-u|--user)[ =]?"
        r"[\"']?[\w.@+\-]{1,64}:(?P<plain>[^\s\"'`|;&]{6,64})",
        1.0,
        span=_password,
        sign="curl ",
        reach=4,
    ),
    Rule(
        "API_KEY",
        r"(?:(?i:(?:api|secret|access|account|signing|encryption|master)[_\- ]?key|"
        r"(?:access|auth|api|bot|refresh)[_\- ]?token|"
        r"(?:client|signing|webhook|jwt)[_\- ]?secret)|(?<=[A-Z0-9]_)(?:TOKEN|SECRET|(?<!PUBLIC_)KEY))"
        rf"{_NAME_END}{_ASSIGNED}(?:{_QUOTED.format(16)}|{_UNQUOTED.format(16)})",
        1.0,
        span=_named_key,
        sign=r"[kKcC](?:[eE][yYnN]|[rR][eE][tT])",
        reach=11,
    ),
)

RULES = (*_KEYS, _JWT, _PRIVATE_KEY, *_PASSWORDS)
