"""Sealed mappings that wait in Redis, for several gateways. Redis sees ids as hashes, and no original value."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gliner_bento.errors import StorageUnavailable

logger = logging.getLogger("gliner_bento.gateway")

_PREFIX = b"gliner-bento:mapping:"
_TIMEOUT_S = 2.0
_MAX_CONNECTIONS = 64
_RETRIES = 1  # a connection of a Redis that has restarted is replaced


class MappingsInRedis:
    """See `WaitingMappings`. url: the setting `redis_url`. Each mapping expires; its size is limited by
    `max_mapping_bytes`, their number by Redis itself (`maxmemory`)."""

    def __init__(self, url: str, lifetime_s: int) -> None:
        self._lifetime_s = lifetime_s
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=_TIMEOUT_S,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), _RETRIES),
        )
        self._redis = Redis.from_pool(pool)

    async def put(self, keys: Sequence[bytes], sealed: str) -> None:
        if keys:
            with _errors():
                async with self._redis.pipeline(transaction=False) as pipeline:
                    for key in keys:
                        pipeline.set(_name(key), sealed, ex=self._lifetime_s)
                    await pipeline.execute()

    async def get(self, keys: Sequence[bytes]) -> Sequence[str]:
        if not keys:
            return []
        with _errors():
            return [found.decode() for found in await self._redis.mget(map(_name, keys)) if found]

    async def aclose(self) -> None:
        await self._redis.aclose()


def _name(key: bytes) -> bytes:
    return _PREFIX + key.hex().encode()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError, UnicodeDecodeError) as error:
        logger.warning("redis_url: %s", type(error).__name__ if isinstance(error, UnicodeDecodeError) else error)
        raise StorageUnavailable("the server cannot use its Redis (redis_url); its log says why") from None
