"""The texts whose passes set the scales of quantized layers when a model is loaded (see `layers.int8`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.self_test import unfiltered_item
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.extraction import ExtractionItem

MAX_TEXTS = 64
MAX_CHARS = 4000

_LABELS = (
    ("person", "organization", "location", "date", "event"),
    ("e-mail address", "phone number", "street address", "account number"),
    ("product", "price", "company", "job title"),
    ("disease", "medicine", "dose", "symptom", "body part"),
    ("city", "country", "river", "language"),
    ("court", "law", "party", "amount of money", "deadline"),
)
_RELATIONS = ("works for", "located in")

TEXTS: Sequence[str] = (
    "Marta Kowalczyk moved from Gdynia to Lisbon in March 2019 to lead the research group of Atlantic Robotics.",
    "Please call me back on +44 20 7946 0112 or write to j.fenwick@example.org before Friday noon.",
    "The board of Hallberg Foods approved the sale of its frozen vegetables unit to a Danish investor for 84 "
    "million euros, of which a third is paid at once and the rest over four years, provided that the plant in "
    "Kolding stays open.",
    "Patient reports mild headache and nausea since Tuesday; 400 mg ibuprofen twice a day, no known allergies.",
    "OK",
    "The Mekong rises on the Tibetan Plateau, runs through six countries and reaches the sea in southern Vietnam.",
    "Pursuant to section 12(3) of the Tenancy Act, the landlord returns the deposit of 1,450.00 within thirty days.",
    "2024-11-03T08:14:59Z ERROR worker-7 connection to db01.internal:5432 refused, retrying in 8s (attempt 3 of 5)",
    "Order 88-20417: 2 x desk lamp, white, 39.90 each; 1 x office chair, 219.00; to 14 Orchard Lane, Leeds LS2 9JT.",
    "Did anybody at the meeting ask Professor Adeyemi whether the samples from Lake Turkana were dated?",
    "Die Geschäftsführerin Annika Vogel unterschrieb den Vertrag mit der Nordwerft GmbH am 4. Juni in Hamburg.",
    "Le ministre a rencontré les représentants de la ville de Lyon, où le nouveau tramway doit ouvrir en septembre.",
    "La doctora Inés Robledo trabaja en el Hospital del Mar desde hace once años y habla catalán, inglés y portugués.",
    "Quarterly revenue rose 7.2 % to $3.18 billion, helped by strong demand for sensors in Asia, while "
    "operating margin slipped to 18.4 % because of higher shipping costs and the closure of the Ohio line.",
    "Name: Tobias Lindgren\nBorn: 12 May 1987\nAddress: Storgatan 5, 903 26 Umeå\nMember no.: 0045-771-23",
    "She plays the cello.",
    "In 1911, after two failed attempts, the expedition led by Captain Rasmussen crossed the glacier with "
    "nineteen dogs, three sledges and food for fifty days; the diary of its cook, found in an attic in Tromsø a"
    " century later, says that most of the biscuits were lost in the first week and that nobody told the "
    "captain until they had reached the coast.",
    "The new phone has a 6.1-inch screen, two cameras and a battery that lasts a day and a half, the maker says.",
    "def total(rows): return sum(row['price'] * row['count'] for row in rows if row['status'] != 'cancelled')",
    "Goal! Okafor heads it in from the corner, and Rovers lead United by two to one with six minutes left.",
    "IBAN GB33 BUKB 2020 1555 5555 55, reference rent May, sender M. Ito, amount 950 pounds",
    "Researchers at the University of Otago and the Max Planck Institute describe a fossil penguin that weighed"
    " as much as a grown man. It lived about sixty million years ago, they write in the journal, and had wings "
    "unlike those of any penguin alive today. The bones were found by an amateur on a beach north of Dunedin "
    "after a storm. A cast will be shown in the museum from next month; the original stays in the collection, "
    "where it is scanned.",
    "Flight KL 1027 to Amsterdam is delayed by 40 minutes; passengers with connections should go to desk B12.",
    "Was it the tenth or the eleventh of August when Mr and Mrs Petrov signed in front of the notary in Plovdiv?",
    "The tribunal heard that the company had dismissed Ms Grant, its chief engineer, two days after she "
    "reported cracks in the dam to the regulator, and awarded her 61,000 pounds in damages.",
    "東京の会議で、佐藤さんは新しい工場の計画を発表した。",
    "Анна Соколова работает в издательстве в Казани с 2015 года.",
    "a b c d e f g 1 2 3 4 5 - - - ... !!! ???",
)
"""Kinds of text that servers get: news, letters, forms, orders, records, logs, code, several languages and lengths."""


def calibration_items(info: ModelInfo, file: Path | None) -> Iterator[ExtractionItem]:
    """An item for each text: those of `file` if there is one, else `TEXTS`. Raises ModelError."""
    limit = info.max_labels_per_pass
    relations = _RELATIONS if info.supports_relations else ()
    for index, text in enumerate(TEXTS if file is None else _read(file)):
        item = unfiltered_item(info, text, _LABELS[index % len(_LABELS)][:limit], relations)
        yield replace(item, threshold=1.0, relation_threshold=1.0)


def _read(file: Path) -> list[str]:
    """The texts in a file, one a line. Raises ModelError."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"calibration_file {file} cannot be read: {error}") from error
    texts = [line.strip()[:MAX_CHARS] for line in lines if line.strip()][:MAX_TEXTS]
    if not texts:
        raise ModelError(f"calibration_file {file} has no text")
    return texts
