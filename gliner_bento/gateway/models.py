"""The models that a gateway serves: a table, which has one row today."""

from __future__ import annotations

from collections.abc import Sequence

from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.languages import LanguageCheck
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.replicas.base import Replica
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import ExtractionWarning, Item, Limits, Result


class ServedModel:
    """A row of the table: a model's replica, the limits of its requests, and its adapters."""

    def __init__(self, replica: Replica, options: GatewayOptions) -> None:
        self.replica = replica
        self.limits: Limits = options
        self.adapters = AdapterApi(replica.adapters, options)
        self._info: ModelInfo | None = None
        self._languages = LanguageCheck(())

    async def info(self) -> ModelInfo:
        """What its replica serves; requested once, because a replica serves one model for its whole life. Raises
        `NotReady` until it has answered: requests ask afterwards, because they wait for a replica."""
        if self._info is None:
            self._info = (await self.replica.status()).model
            self._languages = LanguageCheck(self._info.languages)
        return self._info

    def check(self, item: Item) -> None:
        """Raise InvalidField for what the model cannot do; as long as the model is unknown, its replica does."""
        if self._info is not None:
            item.check_supported(self._info.model, self._info.tasks)

    def warnings(self, item: Item, result: Result) -> Sequence[ExtractionWarning]:
        """The replica's, and one for the text's language. An adapter may be trained for other languages."""
        return (*result.warnings, *(() if item.adapter_id else self._languages.warnings(item.text)))
