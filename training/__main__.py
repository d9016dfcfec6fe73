"""Command line: `python -m training train|report|reach`.

`train` makes the bundled model, from scratch or from `--start`; interrupted, it continues from its last checkpoint in
`--work`, with the result that it would have had. `report` scores a checkpoint, `reach` only its relations in texts of
several facts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from training import reach
from training.evaluate import evaluate, report
from training.probing import write_report
from training.stages import run_stages

DEMO = Path(__file__).parents[1] / "models" / "demo"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--out", type=Path, default=DEMO, help="checkpoint folder (default: models/demo)")
    training.add_argument(
        "--work",
        type=Path,
        default=Path("build/demo-model"),
        help="folder for the encoder, the checkpoints and the log",
    )
    training.add_argument("--start", type=Path, help="checkpoint folder to continue from: runs the last stage alone")
    training.add_argument("--trial", type=int, metavar="STEPS", help="stop every stage after STEPS steps")
    scores = commands.add_parser("report")
    relations = commands.add_parser("reach")
    relations.add_argument("--output", type=Path, help="file for the counts at all thresholds (JSON)")
    for command in (scores, relations):
        command.add_argument("--model", type=Path, default=DEMO, help="checkpoint folder (default: models/demo)")
        command.add_argument("--threshold", type=float, default=0.5)
    for command in (training, scores):
        command.add_argument(
            "--data",
            type=Path,
            required=command is not scores,
            help="folder with train.jsonl.gz, dev.jsonl.gz, labels.json",
        )
    return parser.parse_args()


def main() -> None:
    """Run a command."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    if arguments.command == "train":
        begin = time.monotonic()
        run_stages(arguments.data, arguments.out, arguments.work, arguments.start, arguments.trial)
        print(f"trained in {(time.monotonic() - begin) / 60:.1f} minutes")
        print(report(evaluate(arguments.out, arguments.data)))
    elif arguments.command == "reach":
        print(reach.report(arguments.model, arguments.threshold, arguments.output))
    else:
        write_report(arguments.model, arguments.data, arguments.threshold)


if __name__ == "__main__":
    main()
