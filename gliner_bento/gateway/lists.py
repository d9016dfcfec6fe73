"""What lists say about texts: those of a request, of its API key and of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gliner_bento.errors import LimitExceeded
from gliner_bento.gateway.expressions import ExpressionRunner
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.privacy.known_values import Effort
from gliner_bento.privacy.lists import NOTHING, Listed, Lists
from gliner_bento.privacy.recognizers.expressions import ExpressionError, Spans
from gliner_bento.tasks.lists import wrong_pattern


async def listed(
    runner: ExpressionRunner,
    tenant: Tenant,
    own: Lists,
    others: Sequence[Lists],
    texts: Sequence[str],
    effort: Effort,
) -> list[Listed]:
    """What the lists say about each text. own: of the request. others: the operator's, which add to them. effort: of
    the request so far.

    Raises `InvalidField` for a pattern of the request, `LimitExceeded` for one of the operator, and for too many
    matches, and `DeadlineExceeded`.
    """
    found = [NOTHING for _ in texts]
    for lists in (own, *others):
        if not lists:
            continue
        try:
            expressions = [entry.expression for _, entry in lists.patterns]
            of_patterns = await runner.spans(tenant, expressions, texts)
        except ExpressionError as error:
            if lists is own:
                raise wrong_pattern(lists, error) from None
            raise LimitExceeded(f"text: a pattern of the server's lists: {error}", param="text") from None
        more = await asyncio.to_thread(_listed, lists, texts, of_patterns, effort)
        found = [one + other for one, other in zip(found, more, strict=True)]
    return found


def _listed(lists: Lists, texts: Sequence[str], of_patterns: Sequence[Sequence[Spans]], effort: Effort) -> list[Listed]:
    return [lists.listed(text, spans, effort) for text, spans in zip(texts, of_patterns, strict=True)]
