"""Train an adapter for a label that the bundled model cannot extract, and serve it; see docs/adapters.md.

`python examples/train_adapter.py --out dosing --url http://127.0.0.1:3000 --id dosing`
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from peft import LoraConfig, get_peft_model

from gliner_bento.client import Client

BASE = Path(__file__).parents[1] / "models" / "demo"
NEW = "dosing frequency"
KNOWN = ["drug", "person", "date", "duration", "symptom", "company", "city", "product", "money", "number"]
TEMPLATES = """
Take {drug} {often} {period}, then come back.
{person} was put on {drug} {dose} {often} on 3 June.
Please give {person} {dose} of {drug} {often}, and call us if nothing changes.
{drug} was reduced to {dose} {often} after {person} felt dizzy.
We start with {drug} {often} and go up to {often} if it is tolerated.
{often}, {person} needs {dose} of {drug}; the rest stays as it is.
{person} took {drug} {period} and had no complaints.
{person} moved from Lyon to Porto in 2016 and works for Veltrix there.
Kestrel Media paid 3 million dollars for a printer and 25 phones.
""".strip().splitlines()
SLOTS = {
    "drug": ["amoxicillin", "Zelmira", "metformin", "ibuprofen", "the cream", "Corvadex", "insulin", "these drops"],
    "dose": ["500 mg", "10 ml", "two tablets", "one capsule", "0.5 g", "20 units", "a spoonful"],
    "person": ["Mr Adeyemi", "Ines", "the patient", "my mother", "Dr. Halvorsen", "she", "the boy"],
    "period": ["for ten days", "for two weeks", "until 3 June", "until Monday", "since last winter", "for 6 months"],
    "often": [
        "once a day", "twice a day", "three times a day", "4 times a day", "two times per day", "6 times per week",
        "once daily", "twice daily", "3 times daily", "daily", "weekly", "once per month", "each Sunday", "at night",
        "every hour", "every 4 hours", "every two days", "every second night", "every morning", "after meals"],
    "often, held out": ["every 6 hours", "every twelve hours", "five times a day", "twice a week", "each evening",
        "every other day", "every three weeks", "once every 5 days", "at bedtime", "thrice daily", "every Thursday"],
}  # fmt: skip
HELD_OUT = """
Her chart lists Torvanil 40 mg {often, held out} and nothing else.
Mrs Okafor swallowed 2 pills {often, held out} for a month.
Pain relief was switched from {often, held out} to {often, held out} on Friday.
The nurse, Tom Brandt, changes the patch {often, held out}.
Mrs Okafor bought Torvanil on Tuesday and has used it for four days.
""".strip().splitlines()
OTHER = """
Carlos Mendes sold Ravelin Foods for three million euros after twelve years.
Amara Diallo, the mayor of Porto Velho, will speak at the Harvest Festival in Brazil.
Our office in Toronto ordered 40 chairs and a coffee machine from Nordbeck.
Tickets for the World Robot Summit in Seoul on 14 July cost 89 dollars.
She trains twice a week for the Boston Marathon, said Kenji Watanabe, head of sales at Solventa.
""".strip().splitlines()
OTHER_LABELS = ["person", "organization", "city", "country", "date", "money", "event", "job title", "product", "number"]
ASKED, SHOWN = [NEW, *KNOWN[:4]], "Mrs Okafor takes Torvanil 40 mg every third evening, until 9 May at least."
Spans = set[tuple[int, int, str]]  # entities of a text: start and end in characters, label


def write(template: str, rng: random.Random) -> tuple[str, Spans]:
    """Fill a template with random values; returns the sentence and the spans of the new label."""
    parts = [(slot, rng.choice(SLOTS.get(slot, [slot]))) for slot in template.replace("}", "{").split("{")]
    ends = accumulate(len(part) for _, part in parts)
    spans = {(end - len(part), end, NEW) for (slot, part), end in zip(parts, ends, strict=True) if "often" in slot}
    return "".join(part for _, part in parts), spans


def answers(gliner: GLiNER, texts: list[str], labels: list[Any]) -> list[Spans]:
    """The entities that the model predicts for each text; `labels` is one list for all texts, or a list per text."""
    found, _ = gliner.inference(texts, labels, relations=[])
    return [{(entity["start"], entity["end"], entity["label"]) for entity in entities} for entities in found]


def training_data(gliner: GLiNER, rng: random.Random, each: int) -> list[dict[str, Any]]:
    """Examples in gliner's format, `each` of a template. For labels that the base model knows, it sets the targets."""
    written = [write(template, rng) for template in TEMPLATES for _ in range(each)]
    prompts = [rng.sample(KNOWN, 5) for _ in written]
    known = answers(gliner, [text for text, _ in written], prompts)
    data = []
    for (text, new), prompt, others in zip(written, prompts, known, strict=True):
        words = list(gliner.data_processor.words_splitter(text))  # (word, start, end)
        first, last = ({word[side]: number for number, word in enumerate(words)} for side in (1, 2))
        kept = {other for other in others if all(other[1] <= span[0] or span[1] <= other[0] for span in new)}
        ner = [[first[start], last[end], label] for start, end, label in sorted(new | kept)]
        labels = rng.sample([NEW, *prompt], 5)  # in random order, sometimes without the new label
        data.append({"tokenized_text": [word[0] for word in words], "ner": ner, "ner_labels": labels})
    return data


def train(gliner: GLiNER, data: list[dict[str, Any]], steps: int, rng: random.Random, size: int = 8) -> Any:
    """Add an adapter to gliner's model and train it; returns the PEFT model."""
    layers = ["query", "value", "prompt_rep_layer.0", "prompt_rep_layer.3", "out_project.0", "out_project.3"]
    model = get_peft_model(gliner.model, LoraConfig(r=8, lora_alpha=16, target_modules=layers))
    collate = gliner.data_collator_class(gliner.config, data_processor=gliner.data_processor)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=2e-3)
    model.train()
    for step in range(1, steps + 1):
        batch = rng.sample(data, size)
        loss = model(**collate(batch, entity_types=[example["ner_labels"] for example in batch])).loss / size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.2f}", flush=True)
    return model


def f1(found: list[Spans], wanted: list[Spans]) -> float:
    """Exact-match micro-F1 of the new label."""
    found = [{span for span in spans if span[2] == NEW} for spans in found]
    return 2 * sum(map(len, map(set.__and__, found, wanted))) / sum(map(len, [*found, *wanted]))


def main() -> None:
    """Train and save the adapter, compare it with the base model, and upload it if `--url` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the adapter")
    parser.add_argument("--steps", type=int, default=150, help="training steps (default: 150)")
    parser.add_argument("--each", type=int, default=30, help="sentences per template (default: 30)")
    parser.add_argument("--url", help="a server of the bundled model, started with --enable-lora")
    parser.add_argument("--id", default="dosing", help="adapter id on the server (default: dosing)")
    options = parser.parse_args()
    if options.url:
        Client(options.url).adapters()  # fail before the training if the server has LoRA disabled
    torch.manual_seed(0)
    rng = random.Random(0)
    gliner = GLiNER.from_pretrained(str(BASE), local_files_only=True)
    texts, wanted = zip(*[write(template, rng) for template in HELD_OUT for _ in range(12)], strict=True)
    base, base_other = answers(gliner, texts, ASKED), answers(gliner, OTHER, OTHER_LABELS)
    model = train(gliner, training_data(gliner, rng, options.each), options.steps, rng)
    model.save_pretrained(options.out)
    mine, mine_other = answers(gliner, texts, ASKED), answers(gliner, OTHER, OTHER_LABELS)
    print(f"{NEW}, F1 on {len(texts)} held-out sentences: base {f1(base, wanted):.2f}, adapter {f1(mine, wanted):.2f}")
    base_count, same = (sum(map(len, spans)) for spans in (base_other, map(set.__and__, base_other, mine_other)))
    print(f"other labels, {len(OTHER)} other sentences: of the base's {base_count} answers the adapter gives {same}")
    if options.url:
        with Client(options.url) as client:
            client.put_adapter(options.id, options.out)
            for adapter in (None, options.id):
                found = client.extract(SHOWN, ASKED, adapter_id=adapter).entities
                print(f"{adapter or 'base'}: " + ", ".join(f"{e.text} = {e.label} {e.score:.2f}" for e in found))


if __name__ == "__main__":
    main()
