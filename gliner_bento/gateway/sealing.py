"""The server's `Sealer`, which is made when it is first needed."""

from __future__ import annotations

import asyncio

from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.privacy.sealing import Sealer
from gliner_bento.storage.redaction_keys import read_keys


class Sealing:
    """Makes the `Sealer` when it is first needed: its key may be made then."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._sealer: Sealer | None = None

    async def sealer(self) -> Sealer:
        """The server's sealer. Raises `StorageUnavailable`."""
        if self._sealer is None:
            options = self._options
            source = options.redaction_key.get_secret_value() if options.redaction_key else None
            keys = await asyncio.to_thread(read_keys, source)
            self._sealer = Sealer(keys, max_bytes=options.max_mapping_bytes, lifetime_s=options.mapping_lifetime_s)
        return self._sealer
