"""Extract triples from sentences: `python examples/knowledge_graph.py < sentences.txt`. Needs a running server."""

from __future__ import annotations

import asyncio
import os
import sys

from gliner_bento.client import AsyncClient

ENTITIES = ["person", "company", "city", "date"]
RELATIONS = ["founded", "works at", "born in", "headquartered in", "founded in"]


async def triples(client: AsyncClient, sentence: str) -> list[tuple[str, str, str]]:
    """The (head, relation, tail) triples of one sentence."""
    found = await client.extract(sentence, ENTITIES, relations=RELATIONS)
    return [(relation.head.text, relation.relation, relation.tail.text) for relation in found.relations]


async def main() -> None:
    """Send one request per line, all concurrently; the server batches them."""
    sentences = [line.strip() for line in sys.stdin if line.strip()]
    async with AsyncClient(os.environ.get("URL", "http://localhost:3000")) as client:
        found = await asyncio.gather(*(triples(client, sentence) for sentence in sentences))
    for triple in (triple for of_one in found for triple in of_one):
        sys.stdout.write("\t".join(triple) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
