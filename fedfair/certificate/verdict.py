"""Decides what a certificate says about using its model at all: only what its own figures prove.

The worst group of the size that the model was trained for is compared with the uniform guess and with the best
constant prediction, the accuracy with the share of the most frequent class; margins are those of the verdict of a
run (`fedfair.results.verdict`). The last two need the numbers of records of each class. They are published where
no number tells of fewer people than a bin may. The model before training is no part of the evaluated sums, so
nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedfair.aggregation.evaluation_file import SplitSums
from fedfair.certificate.document import CertifiedVerdict, Outcomes, Statement
from fedfair.fairness.constant_prediction import best_constant_risk, majority_share
from fedfair.fairness.metrics import uniform_classifier_loss
from fedfair.results.verdict import MARGIN


def published_outcomes(sums: SplitSums, fewest: int) -> Outcomes | None:
    """Return the outcomes of a split; None where they are not known, or tell of too few people.

    Args:
        sums: the sums of the split.
        fewest: people that a published number tells of at least, unless it is 0.
    """
    counts = [] if sums.confusion is None else [sum(row) for row in sums.confusion]
    if sums.correct is None:
        return None
    outcomes = Outcomes(counts=tuple(counts), correct=sums.correct)
    return outcomes if sum(counts) == sums.n and not few_people(outcomes, fewest) else None


def guess_of(classes: int | None, told: float | None) -> float | None:
    """Return the loss of guessing; None where it has no meaning.

    Args:
        classes: how many the model tells apart; None where records are not classified.
        told: what the evaluation says where there are no classes, which only the plan can prove.
    """
    return told if classes is None else uniform_classifier_loss(classes)


def few_people(outcomes: Outcomes, fewest: int) -> bool:
    """Return whether one of the published numbers tells of fewer people than it may."""
    wrong = sum(outcomes.counts) - outcomes.correct
    return any(0 < count < fewest for count in (*outcomes.counts, outcomes.correct, wrong))


def certified_verdict(
    statement: Statement, uniform_floor: float | None, outcomes: Outcomes | None
) -> CertifiedVerdict | None:
    """Return the verdict that a certificate's figures prove; None where there is nothing to compare with.

    Args:
        statement: about the group size that the model was trained for.
        uniform_floor: the loss of guessing; None where it has no meaning.
        outcomes: the numbers of records of each class; None where they are not published.
    """
    if uniform_floor is None:
        return None
    surely, size = statement.sample[0], statement.group_size
    above_constant = below_majority = None
    if outcomes is not None:
        counts: Sequence[int] = outcomes.counts
        above_constant = surely > best_constant_risk(counts, size) + MARGIN
        below_majority = outcomes.correct / sum(counts) < majority_share(counts) - MARGIN
    above_guess = surely > uniform_floor + MARGIN
    return CertifiedVerdict(
        state="worse" if above_guess or above_constant or below_majority else "fine",
        above_uniform_guess=above_guess,
        above_best_constant=above_constant,
        below_majority=below_majority,
    )
