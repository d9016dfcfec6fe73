"""The help of each command: its examples are command lines that are parsed, and its exit codes are there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from gliner_bento import cli
from gliner_bento.cli.flags import parse, parser
from gliner_bento.cli.parsers import commands_of
from gliner_bento.errors import install_hint

COMMANDS = [
    *([name] for name in commands_of(parser())),
    *([name, action] for name, one in commands_of(parser()).items() for action in commands_of(one)),
]
WITHOUT_JSON = {"serve", "completion", "keys", "models", "adapters"}


def help_of(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit, match="0"):
        cli.main([*words, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [[], *COMMANDS], ids=" ".join)
def test_every_help_has_exit_codes_and_examples_that_are_parsed(words, capsys):
    text = help_of(words, capsys)
    assert "exit codes: " in text
    lines = text.partition("examples:\n")[2].replace("\\\n", "")
    examples = re.findall(r"^  (.*?gliner-bento .*)$", lines, re.MULTILINE)
    assert examples
    for line in examples:
        arguments = shlex.split(re.split("[>|)]|  #", line.partition("gliner-bento ")[2])[0])
        assert "COMMAND" in arguments or parse(arguments)
    assert words == [] or all(" ".join(["gliner-bento", *words]) in line for line in examples)
    assert not re.search(r" -\S+ \\\n +[^- ]", text), "a flag and its value are in one line"
    assert text.count("\nsettings:\n") <= 1
    described = text.partition("\npositional arguments:\n")[2]
    if described and words:
        arguments = re.findall(r"^  (\S+)(?: +(\S.*))?$", described.partition("\n\n")[0], re.MULTILINE)
        assert all(name.isupper() or name[0] in "{|" for name, _ in arguments), "arguments are in capitals"


@pytest.mark.parametrize("words", [[], *COMMANDS], ids=" ".join)
def test_every_help_fits_a_terminal_and_names_no_internal_field(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(words, capsys)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "CHECKED" not in text
    assert words == ["serve"] or text.count("\n") < 80


@pytest.mark.parametrize("words", [one for one in COMMANDS if one[-1] not in WITHOUT_JSON], ids=" ".join)
def test_every_command_that_prints_an_answer_prints_it_as_json(words, capsys):
    assert "--json" in help_of(words, capsys)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_completion_knows_commands_and_flags(shell, capsys):
    pytest.importorskip("shtab")
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "adapters" in script
    assert "--text-column" in script
    if shell == "bash":
        typed = 'COMP_WORDS=(gliner-bento bulk --text); COMP_CWORD=2; _shtab_gliner_bento; echo "${COMPREPLY[@]}"'
        program = f"{script}\n{typed}"
        ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=240)
        assert ended.stdout.split() == ["--text-column"]


def test_without_shtab_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 1
    assert capsys.readouterr().err == "gliner-bento: completion: needs shtab; " + install_hint("completion") + "\n"
