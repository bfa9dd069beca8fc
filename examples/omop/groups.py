"""How well models serve the groups of the cohort, which no plan has named.

Usage: python examples/omop/groups.py --data FILE [FILE ...] --model NAME=FILE [NAME=FILE ...]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

import fedfair

OLD = 75
GROUPS = {
    "everybody": lambda table: table.sex > 0,
    "men": lambda table: table.sex == 8507,
    "women": lambda table: table.sex == 8532,
    f"over {OLD}": lambda table: table.age > OLD,
    f"women over {OLD}": lambda table: (table.sex == 8532) & (table.age > OLD),
}


def main() -> None:
    """Print the mean loss of each group under each model, in nats, as a table in Markdown."""
    parser = argparse.ArgumentParser(description="The mean loss of groups of patients.")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="CSV files of the cohort")
    parser.add_argument("--model", nargs="+", required=True, help="NAME=FILE of a saved model")
    asked = parser.parse_args()
    table = pd.concat([pd.read_csv(file) for file in asked.data], ignore_index=True)
    members = {name: group(table) for name, group in GROUPS.items()}
    print(f"| model | {' | '.join(f'{name} ({int(rows.sum())})' for name, rows in members.items())} |")
    print(f"|---{'|---' * len(members)}|")
    for words in asked.model:
        name, _, file = words.partition("=")
        losses = pd.Series(fedfair.load_model(file).losses(table))
        print(f"| {name} | {' | '.join(f'{losses[rows].mean():.3f}' for rows in members.values())} |")


if __name__ == "__main__":
    main()
