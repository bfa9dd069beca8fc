"""What in a result is possible and yet probably not meant: warnings, each with its numbers.

A warning never stops anything. What is doubtful in a plan is the business of `fedfair.learning.advice`.
"""

from __future__ import annotations

from fedfair.report.document import ResultDocument


def doubts(result: ResultDocument) -> tuple[str, ...]:
    """Return warnings about a result; none for one without surprises."""
    mean, floor = result.train.mean, result.uniform_floor
    if mean <= floor:
        return ()
    worse = (
        f"the model is worse than guessing: its mean training loss is {mean:.3g}, that of the uniform guess "
        f"{floor:.3g}; lower training.learning_rate, or train for more rounds"
    )
    return (worse,)
