"""What the bundled model finds in 25 texts of hard kinds: logs, medical notes, tables, cities and airports.

    PYTHONPATH=. python docs/measurements/new_inputs.py > docs/measurements/new_inputs.json

Writes each text with what is right, missed and wrong, by exact boundaries and labels, and the sums of each kind. In a
text, `[Oslo|city]` is an entity; the model is asked for the labels of the text's entities.
"""

from __future__ import annotations

import json
import re
import sys

import gliner_bento

LOGS = [
    "[2026-03-14|date] [08:12:55|time] ERROR payment-7 order [88213|order number] failed after 3 retries",
    "[Nov 02|date] 23:59:01 sshd[1187]: Failed password for [root|user name] from [10.4.0.17|IP address] "
    "port [52114|port]",
    "GET [/v1/users/4471|URL] [503|status code] [12ms|duration] trace=[9f3c2a1b|trace id]",
    "job [1029|job number] finished in [00:14:33|duration], [120394|number of rows] rows, exit code [0|exit code]",
    "WARN disk [/dev/sdb1|device] at [91%|percentage] on [node-17.dc2|host]",
    "invoice [INV-2026-00417|invoice number] of [1.204,50 EUR|amount of money] booked to account [4400|account number]",
]
MEDICINE = [
    "Pt c/o [SOB|symptom] [x3d|duration], hx of [COPD|disease], on [albuterol|medication] PRN.",
    "BP [142/91|blood pressure], HR [88|heart rate], SpO2 [94%|oxygen saturation] RA.",
    "Start [amoxicillin|medication] [500 mg|dose] PO [TID|frequency] x [7d|duration].",
    "[MRI|examination] of [L-spine|body part] shows [HNP|disease] at [L4/L5|body part].",
    "s/p [CABG|procedure] [2019|year], EF 35%, NYHA III.",
    "Rx: [metformin|medication] [1 g|dose] [b.i.d.|frequency], d/c [glipizide|medication].",
    "[DM2|disease], [HTN|disease], [CKD stage 3|disease]; allergies: [PCN|allergy].",
]
TABLES = [
    "name | city | phone\n[Ida Brandt|person] | [Kiel|city] | [0431 55 21 90|phone number]\n"
    "[Ole Kruse|person] | [Husum|city] | [04841 88 12|phone number]",
    "item,qty,price\n[Steel bolt M8|product],[200|quantity],[$14.00|price]\n"
    "[Hex nut M8|product],[150|quantity],[$9.50|price]",
    "Employee\tTeam\tStart\n[Ruth Adeyemi|person]\t[Payroll|team]\t[2021-04-01|date]\n"
    "[Ken Watari|person]\t[Security|team]\t[2023-09-15|date]",
    "| Drug | Dose |\n|---|---|\n| [Ramipril|medication] | [5 mg|dose] |\n| [Bisoprolol|medication] | [2.5 mg|dose] |",
    "No. Station Dep.\n1 [Harwich|city] [09:14|time]\n2 [Colchester|city] [09:41|time]\n"
    "3 [Chelmsford|city] [10:02|time]",
    "Account  Holder        Balance\n[70012|account number]    [L. Marchetti|person]  [$1,200|amount of money]\n"
    "[70013|account number]    [P. Osei|person]       [$310|amount of money]",
]
AIRPORTS = [
    "Flight [LH 1832|flight number] from [Munich|city] to [Bergen|city] leaves at [14:20|time].",
    "[BA117|flight number] [LHR|airport]-[JFK|airport] delayed, next via [EWR|airport] at [19:05|time].",
    "We landed at [Heathrow|airport] and took the train to [Reading|city].",
    "From [Schiphol|airport] to [Ghent|city] via [Brussels-South Charleroi|airport].",
    "[Paris|city], [Texas|state] is not the [Paris|city] with [Orly|airport] and [Charles de Gaulle|airport].",
    "Change at [Chicago O'Hare|airport] for [Nice|city]; [Nice|city] is nice in [May|month].",
]
KINDS = {
    "numbers of logs": LOGS,
    "abbreviations of medicine": MEDICINE,
    "tables": TABLES,
    "cities and airports": AIRPORTS,
}

Found = set[tuple[int, int, str]]


def unmarked(marked: str) -> tuple[str, Found]:
    """The text, and its entities."""
    text, entities = "", set()
    for piece in re.split(r"(\[[^\]|]+\|[^\]]+\])", marked):
        if piece.startswith("[") and "|" in piece and piece.endswith("]"):
            name, _, label = piece[1:-1].rpartition("|")
            entities.add((len(text), len(text) + len(name), label))
            text += name
        else:
            text += piece
    return text, entities


def main() -> None:
    """Print the result."""
    report: dict[str, dict[str, object]] = {}
    with gliner_bento.load("models/demo", dtype="float32") as model:
        for kind, texts in KINDS.items():
            rows, sums = [], {"right": 0, "missed": 0, "wrong": 0}
            for marked in texts:
                text, known = unmarked(marked)
                labels = sorted({label for *_, label in known})
                found = {(one.start, one.end, one.label) for one in model.extract(text, labels).entities}
                of_text = {"right": known & found, "missed": known - found, "wrong": found - known}
                shown = {name: [[text[a:b], label] for a, b, label in sorted(them)] for name, them in of_text.items()}
                sums = {name: sums[name] + len(them) for name, them in of_text.items()}
                rows.append({"text": text, **shown})
            report[kind] = {**sums, "texts": rows}
    json.dump(report, sys.stdout, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
