"""How a model of two classes decides about the slice that it serves worst, out of 100 people like these.

What a result does not tell, because no slice is surely served worse or people are too few, is not mentioned.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.report.per_hundred import PerHundred, per_hundred
from fedfair.results.document import ResultDocument
from fedfair.results.slices import SliceCellFields, SliceDecisions, worst_slice


@dataclass(frozen=True, slots=True)
class WorstDecided:
    """The slice that is served worst, and how the model decides about its people.

    Attributes:
        cells: who is in it.
        n: how many people.
        split: whose records.
        slices: how many were looked at.
        people: 100 of them.
        decisions: the counts, and intervals for the shares.
    """

    cells: tuple[SliceCellFields, ...]
    n: int
    split: str
    slices: int
    people: PerHundred
    decisions: SliceDecisions


def worst_decided(document: ResultDocument) -> WorstDecided | None:
    """Return how the model decides about the slice that it serves worst; None where a result does not tell."""
    fields = document.slices
    found = worst_slice(fields)
    if fields is None or found is None or fields.decisions is None:
        return None
    people = per_hundred(fields.decisions.confusion)
    if people is None:
        return None
    return WorstDecided(found.cells, found.n, fields.split, fields.looked_at, people, fields.decisions)
