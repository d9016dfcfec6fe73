"""Callers' expressions: whatever they are, they end, in a process whose memory has a limit."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gliner_bento.gateway.expressions import ExpressionRunner
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.privacy.recognizers.expressions import (
    FLAGS,
    MAX_MEMORY_BYTES,
    ExpressionError,
    ExpressionProcess,
    check,
    deny_list,
)

pytestmark = pytest.mark.long

ZIP = (r"\b\d{5}\b", FLAGS)


@pytest.fixture(scope="module")
def process() -> Iterator[ExpressionProcess]:
    process = ExpressionProcess()
    yield process
    process.close()


def test_each_text_has_the_spans_of_each_expression(process):
    found = process.spans([ZIP, ("X", 0), ("x*", FLAGS)], ["12345 and 67890", "\U0001f600 x \udc00"])
    assert found == [[[(0, 5), (10, 15)], [], []], [[], [], [(2, 3)]]]
    assert process.spans([("x*", FLAGS), ("b", FLAGS)], ["abc"], first_only=True) == [[[(0, 0)], [(1, 2)]]]
    assert process.spans([ZIP], []) == []


GREEDY = {
    "recursion": "(?R)",
    "recursion in a group": "((?:.|(?1))*)",
    "repeats": "(?:" * 60 + "a?" + "){0,9}" * 60,
    "captures": "((((((((.))))))))*x",
    "a huge count": "a{2000000000}",
    "huge counts": "(?:(?:a{65535}){65535}){65535}",
    "backtracking": r"^(a|A|aa|aaa)+[^\w]$",
    "fuzzy": "(?b)(?:abc.*def.*ghi){e<=30}",
    "a set": r"(?V1)[[\w--[a-z]]&&[\p{L}]]+",
    "lookbehind": "(?<=(?:a+)+)x",
}


@pytest.mark.parametrize("expression", GREEDY.values(), ids=GREEDY)
def test_an_expression_ends_within_its_memory(process, expression):
    """One that takes long or much is an error, and the next job has another process or the same one."""
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    others_peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of processes that other tests have started
    for text in ("Tim Cook", "a" * 1_000_000, "ab c1 Tim Cook, " * 60_000):
        with suppress(ExpressionError):
            process.spans([(expression, FLAGS)], [text])
    assert process.spans([ZIP], ["12345"]) == [[[(0, 5)]]]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - own_peak) * 1024 < MAX_MEMORY_BYTES / 2
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak == others_peak or peak * 1024 < MAX_MEMORY_BYTES + own_peak * 1024


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (r"^(a|A|aa|aaa)+[^\w]$", "too"),
        ("(?R)", "too much memory|too long"),
        ("(", "not a regular expression"),
    ],
)
def test_an_error_names_the_expression_where_it_is_known(process, expression, message):
    with pytest.raises(ExpressionError, match=message) as raised:
        process.spans([ZIP, (expression, FLAGS)], ["a" * 60])
    assert raised.value.expression == 1


def test_too_many_matches_are_an_error(process):
    with pytest.raises(ExpressionError, match="more than 100,000 matches"):
        process.spans([("a", FLAGS)], ["a" * 60_000, "a" * 60_000])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_somebody_has_ended_starts_again(process, how):
    process.spans([ZIP], ["12345"])
    process._process.send_signal(how)
    process._process.wait()
    assert process.spans([ZIP], ["12345"]) == [[[(0, 5)]]]


@pytest.mark.parametrize("recursion", ["(?R)", "(?0)", "(?1)", "(?&name)", "(?P>name)"])
def test_recursion_is_refused_before_it_runs(recursion):
    with pytest.raises(ExpressionError, match="recursion") as raised:
        check([ZIP, (rf"\\(?<name>a{recursion}?b)", FLAGS)])
    assert raised.value.expression == 1
    check([(r"\(\?R\)", FLAGS), ("(?:a)(?i:b)(?=c)(?P<name>d)", FLAGS), (deny_list([recursion]), FLAGS)])


def test_expressions_have_a_length_together():
    check([("a" * 5000, FLAGS)] * 2)
    with pytest.raises(ExpressionError, match="more than 10000 characters"):
        check([("a" * 5001, FLAGS)] * 2)


def test_it_ends_when_its_parent_is_killed():
    program = (
        "from gliner_bento.privacy.recognizers.expressions import ExpressionProcess\n"
        "process = ExpressionProcess()\n"
        "process.spans([('a', 0)], ['a'])\n"
        "print(process._process.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        child = Path("/proc", parent.stdout.readline().strip())
        assert child.exists()
        descriptor = os.pidfd_open(int(child.name))
        parent.kill()
    ended, _, _ = select.select([descriptor], [], [], 60)
    os.close(descriptor)
    assert ended


class TestTenants:
    """The order of jobs, which run one at a time."""

    @pytest.fixture
    def order(self) -> list[str]:
        return []

    @staticmethod
    async def run(runner: ExpressionRunner, name: str, expression: str, order: list[str]) -> None:
        with suppress(ExpressionError):
            await runner.spans(Tenant(name[0]), [(expression, FLAGS)], ["a" * 60])
        order.append(name)

    def test_a_tenant_waits_for_one_job_of_another_and_is_charged_for_its_time(self, order):
        slow, fast = r"^(a|A|aa|aaa)+[^\w]$", "b"

        async def scene() -> None:
            runner = ExpressionRunner(60)
            flood = [asyncio.create_task(self.run(runner, f"a{number}", slow, order)) for number in range(3)]
            await asyncio.sleep(0)
            others = [asyncio.create_task(self.run(runner, f"b{number}", fast, order)) for number in range(3)]
            await asyncio.gather(*flood, *others)

        asyncio.run(scene())
        assert order == ["a0", *(f"b{number}" for number in range(3)), "a1", "a2"]

    def test_a_request_that_has_gone_is_not_run(self, order):
        async def scene() -> None:
            runner = ExpressionRunner(60)
            first = asyncio.create_task(self.run(runner, "a0", r"^(a|A|aa|aaa)+[^\w]$", order))
            await asyncio.sleep(0)
            gone = asyncio.create_task(self.run(runner, "a1", "a", order))
            await asyncio.sleep(0)
            gone.cancel()
            await self.run(runner, "a2", "a", order)
            await first

        asyncio.run(scene())
        assert order == ["a0", "a2"]
