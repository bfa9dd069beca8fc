"""Warns of figures that a result may have but that are probably not meant, each with its numbers.

The faults of its model, as the verdict has them, are among the warnings. A warning never stops anything. What is
doubtful in a plan is the business of `fedfair.report.plan_review`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.results.document import ResultDocument


def result_warnings(result: ResultDocument) -> tuple[str, ...]:
    """Return warnings about a result; none for one without surprises."""
    verdict = result.verdict
    faults = _worse(result) if verdict is None else iter(verdict.sentences if verdict.findings else ())
    return (*_replaced(result), *faults)


def reassurance(result: ResultDocument) -> tuple[str, ...]:
    """Return the sentences of a verdict that found no fault; none where a fault is among the warnings."""
    verdict = result.verdict
    return () if verdict is None or verdict.findings else verdict.sentences


def _replaced(result: ResultDocument) -> Iterator[str]:
    count = result.evaluation.replaced_losses
    if count:
        yield (
            f"{count} losses were not finite or too large to be summed, and were replaced: the figures are "
            "estimates and nothing is proved; lower training.learning_rate, or look for extreme values in the data"
        )


def _worse(result: ResultDocument) -> Iterator[str]:
    """Yield what an older result, which has no verdict, lets suspect."""
    if result.train is None:
        return
    mean, floor = result.train.mean, result.uniform_floor
    if mean > floor:
        yield (
            f"the model is worse than guessing: its mean training loss is {mean:.3g}, that of the uniform guess "
            f"{floor:.3g}; lower training.learning_rate, or train for more rounds"
        )
