"""Downloads from the Hugging Face hub, or finds earlier downloads in its cache. Never waits long for a silent hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from huggingface_hub import HfApi, constants, scan_cache_dir, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    CacheNotFound,
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public, but not typed

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.errors import one_line

# Timeouts of one HTTP request to the hub, and of a whole `_ask`, which includes the lookup of the host name.
_REQUEST_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 8.0


def is_hub_id(name: str) -> bool:
    """Whether a repository of the hub may have this name."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def cached_folders(cache_dir: Path | None, file: str) -> dict[str, Path]:
    """By repository id: the folder of the newest download in the cache that has `file`."""
    try:
        repositories = scan_cache_dir(cache_dir).repos
    except CacheNotFound:
        return {}
    folders = {}
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        for revision in sorted(repository.revisions, key=lambda revision: revision.last_modified):
            if any(cached.file_name == file for cached in revision.files):
                folders[repository.repo_id] = revision.snapshot_path
    return folders


class Hub:
    """The hub, with an operator's options. Asks the hub once per repository. A `repo_id` must satisfy `is_hub_id`."""

    def __init__(self, options: CheckpointOptions) -> None:
        self.cache_dir = Path(options.cache_dir or constants.HF_HUB_CACHE)
        self._token = options.token.get_secret_value() if options.token else None
        self._unreachable = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else None
        self._files: dict[tuple[str, str | None], list[str]] = {}
        self._refusals: dict[tuple[str, str | None], str] = {}

    def cached(self, repo_id: str, names: Sequence[str], revision: str | None = None) -> Path | None:
        """The folder of an earlier download that has one of the files `names`; None if there is none."""
        for name in names:
            cached_file = try_to_load_from_cache(repo_id, name, cache_dir=self.cache_dir, revision=revision)
            if isinstance(cached_file, str):
                return Path(cached_file).parent
        return None

    def download(
        self, repo_id: str, patterns: Sequence[str], revision: str | None = None, ignored: Sequence[str] = ()
    ) -> Path | None:
        """Download the files of a repository that match `patterns` and not `ignored`; returns their folder.

        Returns None if there is a `refusal`. Raises ModelError if the download breaks off.
        """
        if self.refusal(repo_id, revision):
            return None
        try:
            return Path(
                snapshot_download(
                    repo_id,
                    revision=revision,
                    allow_patterns=list(patterns),
                    ignore_patterns=list(ignored),
                    cache_dir=self.cache_dir,
                    token=self._token,
                )
            )
        except GatedRepoError as error:  # `refusal` was None, because the list of its files is public
            self._note(error, repo_id, revision)
            return None
        except Exception as error:
            reason = one_line(error.__cause__ or error)
            raise ModelError(f"{repo_id!r} cannot be downloaded to {self.cache_dir}: {reason}") from error

    def files(self, repo_id: str, revision: str | None = None) -> list[str]:
        """The names of a repository's files; empty if it cannot be downloaded."""
        return [] if self.refusal(repo_id, revision) else self._files[repo_id, revision]

    def refusal(self, repo_id: str, revision: str | None = None) -> str | None:
        """Why the repository cannot be downloaded; None if it can."""
        key = repo_id, revision
        if self._unreachable is None and key not in self._files and key not in self._refusals:
            self._ask(repo_id, revision)
        if key in self._refusals:
            return self._refusals[key]
        return None if key in self._files else self._unreachable

    def _ask(self, repo_id: str, revision: str | None) -> None:
        """Ask the hub for the repository's files, for a limited time."""
        answers: SimpleQueue[list[str] | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                info = HfApi(token=self._token).model_info(repo_id, revision=revision, timeout=_REQUEST_TIMEOUT_S)
                answers.put([file.rfilename for file in info.siblings or ()])
            except Exception as error:
                answers.put(error)

        Thread(target=ask, name="ask-hub", daemon=True).start()
        try:
            answer = answers.get(timeout=_ANSWER_TIMEOUT_S)
        except Empty:
            answer = TimeoutError(f"no answer within {_ANSWER_TIMEOUT_S:.0f} s")
        if isinstance(answer, list):
            self._files[repo_id, revision] = answer
        else:
            self._note(answer, repo_id, revision)

    def _note(self, error: Exception, repo_id: str, revision: str | None) -> None:
        """Remember why the hub refused a repository, or that it cannot be reached at all."""
        endpoint = constants.ENDPOINT
        if isinstance(error, GatedRepoError):
            refusal = f"it is gated: accept its conditions at {endpoint}/{repo_id}, and set token or HF_TOKEN"
        elif isinstance(error, RepositoryNotFoundError):
            refusal = f"{endpoint} has no such model; if it is private, set token or HF_TOKEN"
        elif isinstance(error, RevisionNotFoundError):
            refusal = f"{endpoint} has no revision {revision!r} of it"
        else:
            self._unreachable = f"{endpoint} cannot be reached: {one_line(error)}"
            return
        self._refusals[repo_id, revision] = refusal
