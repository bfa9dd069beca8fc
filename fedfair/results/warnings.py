"""Warns of figures that a result may have but that are probably not meant, each with its numbers.

The faults of its model, as the verdict has them, are among the warnings. A warning never stops anything. What is
doubtful in a plan is the business of `fedfair.report.plan_review`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.losses import PinballLoss
from fedfair.results.document import ResultDocument
from fedfair.results.release import audit_sentences, withheld_sentence
from fedfair.results.slices import slice_sentences
from fedfair.templates import sentences

MANY_ABOVE = 0.01
"""From this share of losses above the range on, the operator is warned."""


def result_warnings(result: ResultDocument) -> tuple[str, ...]:
    """Return warnings about a result; none for one without surprises."""
    if result.statistics is not None:
        return ()
    verdict = result.verdict
    faults = verdict.sentences if verdict is not None and verdict.findings else ()
    values = {"result": result, "many_above": MANY_ABOVE, "quantile_loss": PinballLoss.title}
    found = sentences("fedfair.results", "warnings.txt.jinja", **values)
    return (*withheld_sentence(result.release), *found, *faults)


def reassurance(result: ResultDocument) -> tuple[str, ...]:
    """Return which model the result is, whom it serves worst, and the sentences of a verdict without a fault.

    The sentences of another verdict are among the warnings.
    """
    verdict = result.verdict
    found = () if verdict is None or verdict.findings else verdict.sentences
    return (*which_model(result), *slice_sentences(result.slices), *audit_sentences(result.release), *found)


def which_model(result: ResultDocument) -> Iterator[str]:
    """Yield which of its run's models a result is about; nothing where it does not say so."""
    if result.model is not None:
        yield f"The result is {result.model.words}."
