"""Tokenisation and targets of a batch, laid out as GLiNER's processor lays out its own input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from training.sampling import Example

MAX_PAIRS = 600


@dataclass(slots=True)
class Batch:
    """Tensors of one step. B texts, L tokens, W words, K span widths, C labels, M mentions, P pairs, R relations.

    `targets` (B, K, W, C) and `pair_targets` (P, R) hold 1, 0 or -1 (do not train). Pairs of all texts are in one list:
    `pair_text` (P,) names the text, `heads` and `tails` (P,) index the flat mention list `mentions` (M, 3: text, first,
    last).
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    word_token: torch.Tensor
    label_token: torch.Tensor
    relation_token: torch.Tensor
    targets: torch.Tensor
    mentions: torch.Tensor
    pair_text: torch.Tensor
    heads: torch.Tensor
    tails: torch.Tensor
    pair_targets: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(*(getattr(self, name).to(device) for name in self.__slots__))


class Collator:
    """Turns examples into batches; `max_tokens` is the encoder's limit."""

    def __init__(self, tokenizer: Any, config: Any, max_tokens: int = 512) -> None:
        """`config` gives max_width and the special tokens."""
        self._tokenizer = tokenizer
        self._width = int(config.max_width)
        self._max_tokens = max_tokens
        self._pieces: dict[str, list[int]] = {}
        special = (config.ent_token, config.sep_token, config.rel_token)
        self._ent, self._sep, self._rel = (tokenizer.convert_tokens_to_ids(token) for token in special)

    def _ids(self, word: str) -> list[int]:
        """Token ids of one word (cached: words repeat a lot)."""
        ids = self._pieces.get(word)
        if ids is None:
            ids = self._tokenizer(word, add_special_tokens=False)["input_ids"]
            self._pieces[word] = ids
        return ids

    def tokens(self, example: Example) -> tuple[list[int], list[int], list[int], list[int]]:
        """Token ids, and the token positions of labels, relations and (first pieces of) words."""
        ids = [self._tokenizer.cls_token_id]
        labels, relations, words = [], [], []
        for name in example.labels:
            labels.append(len(ids))
            ids += [self._ent, *self._ids(name)]
        ids.append(self._sep)
        for name in example.relations:
            relations.append(len(ids))
            ids += [self._rel, *self._ids(name)]
        ids.append(self._sep)
        for word in example.words:
            pieces = self._ids(word) or [self._tokenizer.unk_token_id]
            if len(ids) + len(pieces) >= self._max_tokens:
                break
            words.append(len(ids))
            ids += pieces
        ids.append(self._tokenizer.sep_token_id)
        return ids, labels, relations, words

    def batch(self, examples: Sequence[Example]) -> Batch:
        """One batch of examples."""
        rows = [self.tokens(example) for example in examples]
        ids = _pad([row[0] for row in rows], self._tokenizer.pad_token_id, 16)
        lengths = torch.tensor([len(row[0]) for row in rows])
        labels, relations, words = (_pad([row[i] for row in rows], -1, size) for i, size in ((1, 4), (2, 4), (3, 16)))
        size = (len(examples), self._width, words.shape[1], labels.shape[1])
        targets = np.full(size, -1, dtype=np.int8)
        for i, example in enumerate(examples):
            _span_targets(example, len(rows[i][3]), targets[i])
        mentions, pairs, pair_targets = _pair_targets(examples, [len(row[3]) for row in rows], relations.shape[1])
        return Batch(
            input_ids=ids,
            attention_mask=(torch.arange(ids.shape[1])[None] < lengths[:, None]).long(),
            word_token=words,
            label_token=labels,
            relation_token=relations,
            targets=torch.from_numpy(targets),
            mentions=mentions,
            pair_text=pairs[:, 0],
            heads=pairs[:, 1],
            tails=pairs[:, 2],
            pair_targets=pair_targets,
        )


def _up(size: int, multiple: int) -> int:
    """The next multiple: few distinct shapes keep oneDNN from compiling a kernel for every batch."""
    return max(1, -(-size // multiple)) * multiple


def _pad(rows: Sequence[Sequence[int]], value: int, multiple: int) -> torch.Tensor:
    """Rows as one tensor (B, a multiple of `multiple`)."""
    width = _up(max(len(row) for row in rows), multiple)
    return torch.tensor([[*row, *([value] * (width - len(row)))] for row in rows])


def _span_targets(example: Example, words: int, out: np.ndarray[Any, Any]) -> None:
    """Fill targets (K, W, C) of one text; spans that do not fit stay -1."""
    classes = len(example.labels)
    widths = out.shape[0]
    for k in range(min(widths, words)):
        out[k, : words - k, :classes] = 0
    for first, last, label in example.blank:
        which = slice(0, classes) if label is None else slice(label, label + 1)
        out[:, first : last + 1, which] = -1
    for first, last in example.overlap:
        for start in range(max(0, first - widths + 1), min(last, words - 1) + 1):
            shortest = max(0, first - start)
            out[shortest : min(widths, words - start), start, :classes] = 0
    for cells, value in ((example.masked, -1), (example.positives, 1)):
        for first, last, label in cells:
            if last < words and last - first < widths:
                out[last - first, first, label] = value


def _pair_targets(
    examples: Sequence[Example], words: Sequence[int], relations: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mentions (M, 3), pairs (P, 3: text, head, tail) and their targets (P, R), over texts with relation labels."""
    mentions: list[tuple[int, int, int]] = []
    pairs: list[tuple[int, int, int]] = []
    rows: list[np.ndarray[Any, Any]] = []
    for text, example in enumerate(examples):
        count = len(example.relations)
        usable = [i for i, (_, last) in enumerate(example.spans) if last < words[text]]
        if not count or len(usable) < 2:
            continue
        place = {i: len(mentions) + n for n, i in enumerate(usable)}
        mentions += [(text, *example.spans[i]) for i in usable]
        known: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
        for head, tail, relation, target in example.pairs:
            if head in place and tail in place:
                row = known.setdefault((head, tail), _row(count, relations))
                row[relation] = max(int(row[relation]), target) if row[relation] else target
        order = [*known, *((h, t) for h in usable for t in usable if h != t and (h, t) not in known)]
        for head, tail in order[:MAX_PAIRS]:
            pairs.append((text, place[head], place[tail]))
            rows.append(known.get((head, tail), _row(count, relations)))
    if not pairs:
        empty = torch.zeros((0, 3), dtype=torch.long)
        return empty, empty, torch.zeros((0, relations), dtype=torch.int8)
    mentions += [mentions[0]] * (_up(len(mentions), 64) - len(mentions))
    filler = _up(len(pairs), 256) - len(pairs)
    pairs += [pairs[0]] * filler
    rows += [np.full(relations, -1, dtype=np.int8)] * filler
    return torch.tensor(mentions), torch.tensor(pairs), torch.from_numpy(np.stack(rows))


def _row(count: int, relations: int) -> np.ndarray[Any, Any]:
    """A pair's targets (R,): negative for the text's own relation labels, -1 for padding."""
    row = np.full(relations, -1, dtype=np.int8)
    row[:count] = 0
    return row
