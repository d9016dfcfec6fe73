"""What the next process, and other runners of the server, know of the models: changes are kept in a journal."""

from __future__ import annotations

import logging

from gliner_bento.errors import InvalidField
from gliner_bento.host.hosted import HostedModel
from gliner_bento.host.journal import ModelsJournal
from gliner_bento.host.requests import ModelRequests
from gliner_bento.model_types import AddModelRequest

logger = logging.getLogger(__name__)


class Recovery:
    """Writes the changes of `rows` to the journal, and adopts those that others have written. journal: None: changes
    are not kept. A model without a name, which is the only one, is not in the journal."""

    def __init__(
        self, rows: dict[str | None, HostedModel], requests: ModelRequests, journal: ModelsJournal | None
    ) -> None:
        self._rows, self._requests, self._journal = rows, requests, journal

    def adopt(self) -> list[HostedModel]:
        """Add rows for the models of the journal that have none here. Returns the rows to load."""
        added = self._journal.read().added if self._journal else {}
        rows = []
        for name in [name for name in added if name not in self._rows]:
            try:
                rows.append(self._requests.row(AddModelRequest(**added[name])))
            except InvalidField as error:  # its folder no longer exists
                logger.error("the model %s is not served any more: %s", name, error.message)
        for row in rows:
            self._rows[row.name] = row
        return self.restore(rows)

    def restore(self, rows: list[HostedModel]) -> list[HostedModel]:
        """Set failures and pins from the journal. Returns the rows that no request has unloaded."""
        if not self._journal:
            return rows
        content, failures = self._journal.read(), self._journal.failures()
        for row in rows:
            row.failures = failures.get(row.name or "", 0)
            row.pinned = content.pinned.get(row.name or "", row.pinned)
        return [row for row in rows if row.name not in content.unloaded]

    def note_failures(self, row: HostedModel, count: int) -> None:
        """Note how often loading a model has failed since it was last loaded. A load that ends after its model was
        deleted is not noted: the name may be that of a new model."""
        row.failures = count
        if self._journal and row.name and self._rows.get(row.name) is row:
            self._journal.note_failures(row.name, count)

    def note_loaded(self, row: HostedModel) -> None:
        """Note that a model has been loaded."""
        if self._journal and row.name:
            self._journal.note_loaded(row.name, row.request.model_dump() if row.request else None)

    def note_unloaded(self, row: HostedModel, *, added: bool = False) -> None:
        """Note that a model was unloaded by request, or was `added` without loading it."""
        if self._journal and row.name:
            self._journal.note_unloaded(row.name, row.request.model_dump() if row.request and added else None)

    def note_pinned(self, row: HostedModel) -> None:
        """Note that a model was pinned or unpinned by request."""
        if self._journal and row.name:
            self._journal.note_pinned(row.name, row.pinned)

    def forget(self, row: HostedModel) -> None:
        """Remove a row that was deleted, and forget its model."""
        self._rows.pop(row.name, None)
        if self._journal and row.name:
            self._journal.forget(row.name)
