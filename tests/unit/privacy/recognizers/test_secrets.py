"""Recognizers of secrets. The keys are put together here, so that no scanner takes them for real ones."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from random import Random
from string import ascii_letters, ascii_uppercase, digits, hexdigits

import pytest

from gliner_bento.privacy.recognizers.find import find
from gliner_bento.privacy.recognizers.labels import entities_of, for_model
from gliner_bento.settings.configuration import PROJECT_ROOT

SECRETS = ("API_KEY", "JWT", "PASSWORD", "PRIVATE_KEY")
HEX = hexdigits[:16]


def chars(number: int, alphabet: str = ascii_letters + digits) -> str:
    return "".join(Random(number).choices(alphabet, k=number))


def part(value: object) -> str:
    """A part of a JSON Web Token."""
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def pem(lines: int, kind: str = "RSA ") -> str:
    body = "\n".join(chars(64 + line)[line:] for line in range(lines))
    return "\n".join((f"-----BEGIN {kind}PRIVATE KEY-----", body, chars(20) + "==", f"-----END {kind}PRIVATE KEY-----"))


def found(text: str) -> list[tuple[str, str]]:
    return [(match.entity, text[match.start : match.end]) for match in find(text, SECRETS)]


KEYS = {
    "aws": "AKIA" + chars(16, ascii_uppercase + "234567"),
    "google": "AIza" + chars(35),
    "google client": "GOCSPX-" + chars(28),
    "digitalocean": "dop_v1_" + chars(64, HEX),
    "entra": "abc8Q~" + chars(34),
    "github": "ghp_" + chars(36),
    "github app": "ghs_" + chars(40),
    "github fine-grained": f"github_pat_{chars(22)}_{chars(59)}",
    "gitlab": "glpat-" + chars(20),
    "gitlab routable": f"glpat-{chars(27)}.01.{chars(9, HEX)}",
    "slack bot": f"xoxb-{chars(12, digits)}-{chars(13, digits)}-{chars(24)}",
    "slack app": f"xapp-1-A{chars(10)}-{chars(13, digits)}-{chars(64, HEX)}",
    "telegram": f"{chars(10, digits)}:AA{chars(33)}",
    "stripe": "sk_live_" + chars(24),
    "stripe restricted": "rk_test_" + chars(99),
    "stripe webhook": "whsec_" + chars(32),
    "openai": f"sk-proj-{chars(74)}T3BlbkFJ{chars(73)}",
    "openai old": "sk-" + chars(48),
    "anthropic": f"sk-ant-api03-{chars(93)}AA",
    "hugging face": "hf_" + chars(34, ascii_letters),
    "groq": "gsk_" + chars(52),
    "npm": "npm_" + chars(36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + chars(150),
    "sendgrid": f"SG.{chars(22)}.{chars(43)}",
}
WRITTEN = [
    "{}",
    "the key is {}.",
    '{{"key": "{}"}}',
    "https://api.example/v1?key={}&page=2",
    "({}), or `{}`",
    "Bearer {}\n",
]


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("written", WRITTEN)
def test_keys_of_providers(key, written):
    assert found(written.format(key, key)) == [("API_KEY", key)] * written.count("{}")
    assert found(written.format(f"x{key}", f"x{key}")) == []  # a part of a longer word


@pytest.mark.parametrize(
    ("before", "key", "behind"),
    [
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=", chars(86) + "==", ";EndpointSuffix=x"),
        ("Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=b;SharedAccessKey=", chars(43) + "=", ""),
        ("https://hooks.slack.com/services/", f"T{chars(8)}/B{chars(9)}/{chars(24)}", " ok"),
        ("aws_secret_access_key = ", chars(40), "\n"),
        ("JWT_SIGNING_KEY=", chars(32, HEX), "\n"),
        ("export DISCORD_TOKEN='", chars(40), "'"),
        ("PAYMENTS_SECRET=", chars(24), "\n"),
        ('AWS_SECRET_ACCESS_KEY = "', chars(39, ascii_letters) + "7", '"'),
        ('"openaiApiKey": "', chars(32), '"'),
        ("export MISTRAL_API_KEY=", chars(33), ""),
        (r'"{\"client_secret\": \"', chars(41), r'\"}"'),
    ],
)
def test_keys_by_the_name_before_them(before, key, behind):
    assert found(before + key + behind) == [("API_KEY", key)]


@pytest.mark.parametrize("header", [{"alg": "HS256", "typ": "JWT"}, {"typ": "JWT", "alg": "none"}])
@pytest.mark.parametrize("claims", [{"sub": "1"}, {"name": "Ünal", "roles": ["a"] * 900}])
def test_json_web_tokens_are_those_that_decode(header, claims):
    signature = chars(43)
    token = f"{part(header)}.{part(claims)}.{signature}"
    assert found(f"Authorization: Bearer {token}, then") == [("JWT", token)]
    for wrong in (
        f"{part({'typ': 'JWT'})}.{part(claims)}.{signature}",
        f"{part(header)}.{part([1])}.{signature}",
        f"{part(header)[:-3]}.{part(claims)}.{signature}",
        f"{part(header)}.{chars(30)}.{signature}",
        f"{part(header)}.{part(claims)}",
    ):
        assert found(wrong) == []


@pytest.mark.parametrize("lines", [2, 25, 99])
@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH "])
def test_private_keys(lines, kind):
    block = pem(lines, kind)
    in_json = json.dumps({"private_key": block})
    assert found(f"key:\n{block}\nEnd.") == [("PRIVATE_KEY", block)]
    assert found(in_json) == [("PRIVATE_KEY", json.dumps(block)[1:-1])]
    for cut in (block[: len(block) // 2], block[:-40]):
        assert found(cut) == [("PRIVATE_KEY", cut)]
    assert found(block.replace("PRIVATE", "PUBLIC")) == []
    assert found('first = "-----BEGIN PRIVATE KEY-----"; last = "-----END PRIVATE KEY-----"') == []


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ('password = "hunter2!"', "hunter2!"),
        ("os.environ['DB_PASSWORD'] = 'it\"s me'", 'it"s me'),
        ('{"password": "abc"}', "abc"),
        ('password = "$ecret{1"', "$ecret{1"),
        ("password: '50%<a$B'", "50%<a$B"),
        ('{"password":"correct horse battery staple"}', "correct horse battery staple"),
        (r'{"arguments": "{\"userPassword\": \"hunter2\"}"}', "hunter2"),
        ('password: str = "geheim"', "geheim"),
        ('auth = {pass: "geheim"}', "geheim"),
        ("password: tr0ub4dor&3", "tr0ub4dor&3"),
        ("Passwort: geheim123, danke", "geheim123"),
        ("PGPASSWORD=correcthorse\n", "correcthorse"),
        ("DB_PASSWORD=adminPassword\nADMIN_PASSWORD='x'", "adminPassword"),
        ('ADMIN_PASSWORD="adminPassword"', "adminPassword"),
        ('{"password": "adminPassword"}', "adminPassword"),
        ("PASSWORD=/srv/x9K2pQ7v", "/srv/x9K2pQ7v"),
        ("DB_PWD: '/opt/x9K2pQ7v'", "/opt/x9K2pQ7v"),
        ("Server=db;User Id=ada;Pwd=Secret99!;", "Secret99!"),
        ("login --password=hunter2 -v", "hunter2"),
        ("POST /login?user=ada&passwd=hunter2&x=1", "hunter2"),
        ("<password>hunter</password>", "hunter"),
        ("postgres://ada:s3cr3t@db:5432/x", "s3cr3t"),
        ("https://ada:p@ss!word@shop.example/x", "p@ss!word"),
        ("redis://:cachepw@cache/0", "cachepw"),
        ("curl\t-X GET x, curl -X GET\t-u ada:xY7secret", "xY7secret"),
        ("curl -sS --user 'ada:xY7secret' http://a.example", "xY7secret"),
    ],
)
def test_passwords_in_urls_and_assignments(text, password):
    assert found(text) == [("PASSWORD", password)]


@pytest.mark.parametrize(
    "text",
    [
        "password = get_password(1234567)",
        "client.login(user, password=password1, token=token)",
        "password: str | None = None, password2: SecretStr",
        'password: "string", new_password = "password"',
        "password = settings.db.password2",
        "self.password = config['password_1']",
        "hash: pbkdf2, password: sha512, MAX_PASSWORD=128",
        "First pass: decided_mask==0, bypass: 'hunter2'",
        "password=******** passwd: xxxxxxxx",
        "mysql://{user}:{password}@{host}/x redis://:$REDIS_PW@cache https://user:pass@host",
        "password=%s, password='{}', password=\"${DB_PASSWORD}\"",
        "password: <your-password>, pwd=$dbPassword1, pwd=%DB_PW1%",
        'labels = {"password": "Please enter your password"}',
        "docker run -u 1000:1000 -v curl x, curl -u $USER:$PASS http://x, curl -u user:password http://x",
        "PWD: '/opt/app/Ada', export PWD=/srv/ada/x1, OLDPWD=/data/ada/x1",
        "curl my-ui:8080/health, curl http://a-user:8080/health, curl --url:8080/health-1",
        "login(password=adminPassword), password = adminPassword;",
        'CHALLENGE_PASSWORD = "challengePassword", "ChangePassword": "arn:aws:iam::aws:policy/ChangePassword"',
        'api_key="your-api-key-of-the-provider", secret_key = os.environ["SECRET_KEY_BASE_OF_2024"]',
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 sha256-" + chars(64, HEX),
        "id 123e4567-e89b-42d3-a456-426614174000 etag W/" + chars(44),
        "sk-toggleable__label-arrow sk-estimator-doc-link-2 task-list-item-checkbox-0123456789",
        "hf_hub_download npm_config_registry_of_the_project ghp_ xoxb- AKIA AIza -----BEGIN CERTIFICATE-----",
        "at org.example.service.AuthenticationManagerImplementation.login(Manager.java:42)",
    ],
)
def test_what_code_and_logs_have_instead_of_secrets(text):
    assert found(text) == []


def test_the_code_of_this_project_has_no_secrets():
    files = sorted((PROJECT_ROOT / "gliner_bento").glob("[cs]*/*.py"))
    assert len(files) > 40
    assert [hit for file in files for hit in found(file.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "unit", ["-----BEGIN PRIVATE KEY-----\n", "-----BEGIN A", "eyJ.", "eyJhbGci", "a://b:", "sk-", "_" + "a" * 16]
)
@pytest.mark.parametrize("more", ["", 'password="', "password: "])
def test_long_runs_end(unit, more):
    """A hang here is a regular expression that backtracks."""
    find((unit + more) * 2_000, SECRETS)


def test_secrets_have_labels_and_the_model_still_reads_those_without_a_form():
    labels = {"password": "PASSWORD", "Api_Key": "API_KEY", "json web token": "JWT", "private key": "PRIVATE_KEY"}
    assert {label: entities_of(label) for label in labels} == {label: [name] for label, name in labels.items()}
    assert for_model(labels, SECRETS) == ["password", "Api_Key"]
