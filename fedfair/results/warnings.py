"""Warns of figures that a result may have but that are probably not meant, each with its numbers.

The faults of its model, as the verdict has them, are among the warnings. A warning never stops anything. What is
doubtful in a plan is the business of `fedfair.report.plan_review`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.losses import PinballLoss
from fedfair.results.document import ResultDocument

MANY_ABOVE = 0.01
"""From this share of losses above the range on, the operator is told of it."""


def result_warnings(result: ResultDocument) -> tuple[str, ...]:
    """Return warnings about a result; none for one without surprises."""
    verdict = result.verdict
    faults = _worse(result) if verdict is None else iter(verdict.sentences if verdict.findings else ())
    return (*_replaced(result), *_above_range(result), *_below_mean(result), *faults)


def reassurance(result: ResultDocument) -> tuple[str, ...]:
    """Return which model the result is, and the sentences of a verdict that found no fault.

    The sentences of another verdict are among the warnings.
    """
    verdict = result.verdict
    found = () if verdict is None or verdict.findings else verdict.sentences
    return (*which_model(result), *found)


def which_model(result: ResultDocument) -> Iterator[str]:
    """Yield which of its run's models a result is about; nothing where it does not say so."""
    if result.model is not None:
        yield f"The result is {result.model.words}."


def _replaced(result: ResultDocument) -> Iterator[str]:
    count = result.evaluation.replaced_losses
    if count:
        yield (
            f"{count} losses were not finite or too large to be summed, and were replaced: the figures are "
            "estimates and nothing is proved; lower training.learning_rate, or look for extreme values in the data"
        )


def _above_range(result: ResultDocument) -> Iterator[str]:
    split, risk = result.shown
    share = risk.above_range
    if share is not None and share >= MANY_ABOVE:
        yield (
            f"{share:.1%} of the {split} losses are at or above evaluation.loss_range: deployed, the intervals of "
            "the worst groups are wide, and a certificate counts such losses as the range; raise "
            "evaluation.loss_range, look for extreme values in the data, or train for longer"
        )


def _below_mean(result: ResultDocument) -> Iterator[str]:
    """Yield that a model of a mean explains less than the mean; one of a quantile is not meant to be near it."""
    split, risk = result.shown
    found = (risk.metrics or {}).get("r_squared")
    if isinstance(found, float) and found < 0.0 and not result.loss_title.startswith(PinballLoss.title):
        yield (
            f"the model's squared error is larger than that of naming the mean target for everybody (R² over the "
            f"{split} records is {found:.2g}); train for more rounds, or let the target be scaled by "
            "task.standardize: secure"
        )


def _worse(result: ResultDocument) -> Iterator[str]:
    """Yield what an older result, which has no verdict, lets suspect."""
    if result.train is None:
        return
    mean, floor = result.train.mean, result.uniform_floor
    if floor is not None and mean > floor:
        yield (
            f"the model is worse than guessing: its mean training loss is {mean:.3g}, that of the uniform guess "
            f"{floor:.3g}; lower training.learning_rate, or train for more rounds"
        )
