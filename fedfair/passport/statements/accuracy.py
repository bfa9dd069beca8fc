"""How right the model is overall: figures of the result, after comparing them with the opened sums."""

from __future__ import annotations

import math

from fedfair.aggregation.cvar_bounds import Interval, summarise
from fedfair.errors import PassportError
from fedfair.passport.evidence import EVALUATION, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.plan.derived import is_noised
from fedfair.report.tables import SPLIT_WORDS, metric_rows
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import SplitRisk

SLACK = 1e-6
"""A result and a bound are rounded apart by far less, relative to the bound."""


def _made(evidence: ModelEvidence) -> Said:
    check_sums(evidence)
    result = evidence.result
    split, risk = result.shown
    metrics = [(name, ", ".join(values)) for name, *values in metric_rows(risk.metrics or {})]
    verdict = () if result.verdict is None else result.verdict.sentences
    return Said(
        told(
            "accuracy",
            whom=SPLIT_WORDS[split],
            risk=risk,
            result=result,
            metrics=metrics,
            verdict=verdict,
            loss=loss_text,
        ),
        {"split": split, "records": risk.n, "mean loss": risk.mean, "accuracy": risk.accuracy},
    )


def check_sums(evidence: ModelEvidence) -> None:
    """Check that every risk of the result follows from the opened sums of the evaluation beside it.

    Under noise the sums are estimates, and only the model and the plan are compared; nothing is, where the sums
    are kept elsewhere.

    Raises:
        PassportError: a figure of the result lies outside of what the sums prove.
    """
    record, result = evidence.evaluation, evidence.result
    if record is None or is_noised(evidence.agreed.plan):
        return
    for split, risk in result.splits.items():
        held = {name: sums for name, sums in record.splits.items() if name == split}
        if (risk is None) != (not held):
            raise PassportError(f"the result and the evaluation disagree about whether there are {split} records")
        for name in held:
            if risk is not None:
                proven = summarise(record.block(name), [float(size) for size in risk.by_group_size], record.spec)
                _compare(
                    split, risk, proven.n, proven.mean_bound, {s: g.bound for s, g in proven.by_group_size.items()}
                )


def _compare(split: str, risk: SplitRisk, n: int, mean: Interval, groups: dict[float, Interval]) -> None:
    if risk.n != n:
        raise PassportError(f"the result tells of {risk.n} {split} records, the evaluation of {n}")
    figures = [("the mean loss", risk.mean, mean)]
    figures += [
        (f"the loss of the worst {float(size):g}", group.worst, groups[float(size)])
        for size, group in risk.by_group_size.items()
        if group.worst is not None
    ]
    for what, told_figure, bound in figures:
        slack = SLACK * max(1.0, abs(bound.upper))
        if not bound.lower - slack <= told_figure <= bound.upper + slack or math.isnan(told_figure):
            raise PassportError(
                f"the result says that {what} of the {split} records is {told_figure:.9g}; the evaluation's sums "
                f"prove {bound.lower:.9g} to {bound.upper:.9g}",
                "give the result and the evaluation of one run",
            )


ROOM = StatementRoom("accuracy", "How right it is", (RESULT, EVALUATION), _made)
