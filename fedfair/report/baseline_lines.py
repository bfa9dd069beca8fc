"""What could be had without a run's model, in sentences: the base rate, and plain training at equal effort.

The same ones stand in the terminal, on a run's page and in a model's card. Decides the words and the rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.description import percent
from fedfair.results.baselines import base_rate
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import SplitRisk
from fedfair.run.calibration_text import RECORDS
from fedfair.templates import sentences

PLAIN_ALGORITHMS = ("fedavg", "erm")
"""What minimises the mean loss and nothing else."""


@dataclass(frozen=True, slots=True)
class PlainFigures:
    """The figures of plain training that stand beside those of a result.

    Attributes:
        algorithm: which trained it.
        rounds: of its training.
        risk: over the same records.
        label: its name where it is another result of a page; empty where it was trained beside this one.
    """

    algorithm: str
    rounds: int
    risk: SplitRisk
    label: str = ""


def plain_beside(document: ResultDocument) -> PlainFigures | None:
    """Return the plain training that a result holds; None where it holds none of the records that it speaks of."""
    held, split = document.baselines, document.shown[0]
    if held is None or held.plain.split != split:
        return None
    return PlainFigures(held.plain.algorithm, held.plain.rounds, held.plain.risk)


def baseline_lines(document: ResultDocument) -> tuple[str, ...]:
    """Return the sentences about what a result holds; none where there is nothing to compare with."""
    return _said("all", document, plain_beside(document))


def difference_lines(document: ResultDocument, plain: PlainFigures) -> tuple[str, ...]:
    """Return in a sentence by how much the losses of a result are above those of plain training."""
    return _said("difference", document, plain)


def _said(part: str, document: ResultDocument, plain: PlainFigures | None) -> tuple[str, ...]:
    split, risk = document.shown
    size = document.worst_group_size
    return sentences(
        "fedfair.report",
        "baselines.txt.jinja",
        part=part,
        records=RECORDS[split],
        size=percent(size),
        rate=base_rate(risk, size),
        plain=plain,
        algorithm="" if plain is None else _title(plain.algorithm),
        worst=None if plain is None else worst_of(plain.risk, size),
        mean_differs=None if plain is None else _difference(risk.mean, plain.risk.mean),
        worst_differs=None if plain is None else _difference(worst_of(risk, size), worst_of(plain.risk, size)),
        loss=loss_text,
    )


def worst_of(risk: SplitRisk, size: float) -> float | None:
    """Return the mean loss of the worst group of a size; None where it is not reported."""
    group = risk.worst(size)
    return None if group is None else group.worst


def _title(algorithm: str) -> str:
    """Return how an algorithm is written."""
    return next((facts.title for name, facts in ALGORITHMS.items() if name == algorithm), algorithm)


def _difference(value: float | None, other: float | None) -> str | None:
    """Return by how much one loss is above another, in words; None where one is not known."""
    if value is None or other is None:
        return None
    text = loss_text(abs(value - other), beside=other)
    if not float(text):
        return "the same"
    return f"{text} {'higher' if value > other else 'lower'}"
