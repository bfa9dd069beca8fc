"""Tabulates what each algorithm must reveal in a round: the table of docs/explain/algorithms.md.

Counts are for the best protection that each algorithm allows: what is a sum over all sites is counted once,
whatever the number of collaborators, because masked sums can carry it. `python -m fedfair.report.disclosure_table`
prints the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from fedfair.plan.algorithms import ALGORITHMS

TERMS = ("n x", "K d", "d", "K", "m", "G", "1")
"""K collaborators, d parameters, m collaborators drawn, G groups, n records of x numbers each."""

EXAMPLE: Mapping[str, int] = {"K": 51, "d": 9730, "m": 51, "G": 3, "n": 100_000, "x": 17}
"""51 states, a perceptron 16-512-2, and a hundred thousand records of sixteen features and a label."""

HEADING = (
    "| algorithm | a round reveals | numbers | with K = 51 | about one site or group | masked sums can carry |"
)


def table() -> str:
    """Return the comparison in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEADING
    yield "|---|---|---|---|---|---|"
    for name, facts in ALGORITHMS.items():
        shown = (
            f"`{name}`",
            facts.reveals,
            formula(facts.numbers),
            f"{amount(facts.numbers, EXAMPLE):,}",
            formula(facts.about_one),
            facts.masked,
        )
        yield f"| {' | '.join(shown)} |"


def formula(counts: Mapping[str, int]) -> str:
    """Return counts of terms as a formula, such as d + 2; 0 for none."""
    present = [(term, counts[term]) for term in TERMS if counts.get(term)]
    return " + ".join(_product(term, count) for term, count in present) or "0"


def _product(term: str, count: int) -> str:
    if term == "1":
        return str(count)
    return term if count == 1 else f"{count} {term}"


def amount(counts: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Return the value of a formula.

    Args:
        counts: how often each term is in it.
        sizes: what each letter of a term stands for.
    """
    total = 0
    for term, count in counts.items():
        product = count
        for letter in term.split():
            product *= 1 if letter == "1" else sizes[letter]
        total += product
    return total


if __name__ == "__main__":
    sys.stdout.write(table())
