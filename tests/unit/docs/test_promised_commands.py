"""tools/fresh_clone.py, which CI runs: that it sees the commands that the pages promise."""

from __future__ import annotations

import pytest

from tools import fresh_clone


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("make serve MODEL=owner/name DTYPE=bfloat16 PORT=8080\n", {"make serve"}),
        ("make sbom docs ENGINE=podman\nmake image TORCH=cuda  # CUDA\n", {"make sbom", "make docs", "make image"}),
        ("`make image-test`", {"make image-test"}),
        ('gliner-bento extract "a text" --labels person\n', {"gliner-bento extract"}),
        (
            "gliner-bento redact --check copies >report\n`gliner-bento --help`",
            {"gliner-bento redact", "gliner-bento --help"},
        ),
        ("docker run gliner-bento python -m gliner_bento.cli keys new a\nhelm install gliner-bento deploy/helm", set()),
    ],
)
def test_a_command_is_a_program_with_its_target_or_first_word(code, found):
    assert fresh_clone.commands(code) == found


def test_every_promised_command_of_the_pages_is_seen():
    promised = fresh_clone.promised()
    assert {"make dist", "make image", "make docs", "gliner-bento redact", "gliner-bento keys"} <= promised.keys()
    assert fresh_clone.ELSEWHERE.keys() <= promised.keys()
