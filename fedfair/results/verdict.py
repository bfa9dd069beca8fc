"""Decides whether a run did harm: whether its model is worse than what a user could have instead, overall.

    subject          records                      compared with
    training         -                            must have led to a model that is returned
    objective        training                     round 0, the uniform guess; beyond chance
    worst group      held-out, or else training   the same two, at the plan's group size; beyond chance
    mean             as the worst group           the uniform guess; and round 0 and the base rate, unless the
                                                  worst group fares better than before training, or than by the
                                                  guess
    accuracy         as the worst group           the share of the most frequent class, under that condition
    R^2              as the worst group           what the mean of the targets explains, 0, or the least that a
                                                  right model of the loss does; unless the worst group fares
                                                  better than before training, by a model no worse than that
    losses           all                          none may have been replaced

A finding is a fault that the evaluations show: a figure worse than its reference by more than `MARGIN`, and by
more than chance explains where the model's own probabilities are right (`fairness.chance`). The worst group is
chosen after the outcomes are known, so that the unlucky are in it whatever the model. Its loss is a fault where
the model mixed with the guess fits all records better, by more than chance and by `MATERIAL`: then the model is
too sure of a group. A model that protects the worst group may lose on average; one that does neither is of no use.

A finding is certain where intervals prove it: the lower end of the model's figure is above the upper end of the
reference's. Figures under noise for differential privacy, and figures of sums with replaced losses, have no
interval. They are estimates: a finding by them is not certain, and without one nothing is proved either. Under
noise a figure has an interval that holds with 95 %, and is worse than its reference where those intervals are
apart. Risks that are not reported (`evaluation.min_group`) are not compared, and the verdict lists what was
not. Figures are those of the result itself, so that a verdict tells nothing that the result does not. The
sentences are `verdict_sentences.py`'s, what to try is `advice.py`'s. No torch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedfair.fairness.chance import base_rate_by_chance, fewer_right_by_chance, mean_by_chance
from fedfair.fairness.constant_prediction import best_constant_risk, majority_share
from fedfair.fairness.served_size import ROUNDING
from fedfair.results.frozen import FrozenPart
from fedfair.results.risks import Moment, PastRisk, ReportedGroupRisk, SplitRisk
from fedfair.results.served_groups import ServedGroups, served_groups

MARGIN = 0.001
"""A smaller difference of losses (nats) or shares is not told: result pages and tables show thousandths."""

MATERIAL = 0.01
"""In nats: by so much of the overall mean loss a model is too sure, or it is no matter."""

State: TypeAlias = Literal["fine", "worse", "uncertain", "unknown"]
SubjectName: TypeAlias = Literal["training", "objective", "worst_group", "mean", "accuracy", "r_squared", "losses"]
ReferenceName: TypeAlias = Literal[
    "start", "uniform_guess", "base_rate", "best_constant", "majority", "target_mean", "right_model", "finite"
]
Split: TypeAlias = Literal["train", "test"]


class VerdictFinding(FrozenPart):
    """One fault of a model."""

    subject: SubjectName
    """training, objective, worst_group, mean, accuracy, r_squared or losses"""

    split: Split | None
    """the split whose records it is about; null for all of them"""

    value: float
    """the model's figure: nats, a share, or a number of losses or rounds"""

    reference: ReferenceName
    """start (round 0), uniform_guess, base_rate (the shares of the classes, for all records), majority,
    target_mean (always predicting the mean), right_model (the least R squared of a model that is right about its
    loss), or finite (losses); older results also have best_constant"""

    limit: float
    """the reference's figure, in the same unit"""

    certain: bool
    """whether intervals prove it; false where the figures are estimates"""

    sentence: str
    """the same in words"""


class Remedy(FrozenPart):
    """One change of the plan that is worth a try."""

    key: str
    """the key of the plan, such as objective.worst_group_size"""

    wanted: str
    """the value to try"""

    now: str
    """the value that the plan has"""


class RunVerdict(FrozenPart):
    """Whether the model is worse than what could be had without training it."""

    state: State
    """worse (do not use the model as it is), fine (no fault), uncertain (figures are estimates), unknown (nothing
    could be compared)"""

    findings: tuple[VerdictFinding, ...]
    """every fault; empty where there is none"""

    better_than_guess_from: float | None
    """the smallest reported group size from which on the worst group fares better than the uniform guess; null
    where no size does"""

    sentences: tuple[str, ...]
    """the whole verdict in words; the first sentence speaks for all"""

    remedies: tuple[Remedy, ...] = ()
    """what to try, the most promising first; omitted where nothing is known to help"""


@dataclass(frozen=True, slots=True)
class Aim:
    """The plan's aim.

    Attributes:
        group_size: of the worst group (rho), in (0, 1].
        tradeoff: weight of the mean (epsilon), in [0, 1].
        explains: the least R^2 of a right model of a number: 0, or less where the loss asks for no mean.
    """

    group_size: float
    tradeoff: float
    explains: float = 0.0


@dataclass(frozen=True, slots=True)
class StartEvaluation:
    """The evaluation of round 0.

    Attributes:
        moment: its figures.
        same_records: for each split, whether it was over as many records as the last evaluation.
    """

    moment: Moment
    same_records: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class ReturnedEvaluation:
    """The evaluation of the model that the run returned, and of no other: figures side by side are of one model.

    Attributes:
        train: risks over training records.
        test: over held-out records; None where there are none.
        class_counts: records of each class, by split; a split without an entry has too many classes to be counted.
        counts_noised: whether these numbers, and the accuracy, carry noise.
        replaced: losses that were replaced because they were not finite or too large.
        given_up_after: rounds that led to no better model, where the untrained one is returned; else 0.
    """

    train: SplitRisk
    test: SplitRisk | None
    class_counts: Mapping[str, Sequence[int]]
    counts_noised: bool = False
    replaced: int = 0
    given_up_after: int = 0

    @property
    def shown(self) -> tuple[Split, SplitRisk]:
        """Return the split that speaks for the model: of people that it never saw, where there are any."""
        return ("train", self.train) if self.test is None else ("test", self.test)


@dataclass(frozen=True, slots=True)
class FoundFault:
    """A finding before it is put in words; attributes as in `VerdictFinding`, with the number of records."""

    subject: SubjectName
    split: Split | None
    records: int
    value: float
    reference: ReferenceName
    limit: float
    certain: bool


class OmissionReason(enum.Enum):
    """The reason why a comparison could not be made."""

    NOT_EVALUATED = "round 0 was not evaluated"
    OTHER_RECORDS = "round 0 was evaluated over other records"
    TOO_FEW_PEOPLE = "the worst group is too few people"
    NO_CLASS_COUNTS = "there are too many classes for a count of each"


@dataclass(frozen=True, slots=True)
class Omission:
    """A comparison that could not be made: over which split, and why."""

    split: Split
    why: OmissionReason


@dataclass(frozen=True, slots=True)
class Unserved:
    """The worst group of the plan's size, where it certainly fares no better than by guessing.

    Attributes:
        split: over which records.
        records: how many.
        value: the worst group's mean loss.
        guess: the loss of the uniform guess.
        by_chance: whether chance may explain it; None where that is not known.
    """

    split: Split
    records: int
    value: float
    guess: float
    by_chance: bool | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of all comparisons.

    Attributes:
        faults: in the order of the module's table.
        omissions: comparisons that could not be made.
        compared: whether the objective or the worst group was compared with anything.
        estimated: whether a figure that was compared is an estimate.
        better_than_guess_from: as in `RunVerdict`.
        served: which group sizes are served better than by guessing, also between the reported ones; None where
            guessing has no meaning.
        has_classes: whether a constant class was compared too.
        unserved: the worst group, where it fares no better than by guessing; that alone is no fault.
        has_mean: whether a predicted number was compared with the mean of all.
    """

    faults: tuple[FoundFault, ...]
    omissions: tuple[Omission, ...]
    compared: bool
    estimated: bool
    better_than_guess_from: float | None
    served: ServedGroups | None
    has_classes: bool = True
    unserved: Unserved | None = None
    has_mean: bool = False


def compare(
    aim: Aim, uniform_floor: float | None, start: StartEvaluation | None, returned: ReturnedEvaluation
) -> Comparison:
    """Compare the model that a run returned with what could be had without it.

    Args:
        aim: of the plan.
        uniform_floor: loss of the uniform guess, log(classes) in nats; None where guessing has no meaning.
        start: the evaluation of round 0; None where there was none.
        returned: the evaluation of the model.
    """
    split, risk = returned.shown
    worst = Aim(aim.group_size, 0.0)
    omissions: list[Omission] = []
    faults: list[FoundFault] = []
    figures: list[_Range] = []
    mixtures: list[tuple[SubjectName, Split, SplitRisk, Aim]] = [
        ("objective", "train", returned.train, aim),
        ("worst_group", split, risk, worst),
    ]
    for subject, place, held, mixture in mixtures:
        figure = _mixed(held.worst(mixture.group_size), held, mixture.tradeoff)
        if figure is None:
            omissions.append(Omission(place, OmissionReason.TOO_FEW_PEOPLE))
            continue
        figures.append(figure)
        past = _start(mixture, start, place)
        if isinstance(past, Omission):
            omissions.append(past)
        references: dict[ReferenceName, _Range | Omission | None] = {
            "start": past,
            "uniform_guess": _exactly(uniform_floor),
        }
        faults += _tail_faults(subject, place, held, figure, references, start)
    overall = _Overall(split, risk, returned, _start_mean(start, split), _start(worst, start, split))
    if uniform_floor is not None:
        faults += _mean_faults(overall, uniform_floor, aim.group_size)
        if overall.counts is None and not _has_no_classes(returned):
            omissions.append(Omission(split, OmissionReason.NO_CLASS_COUNTS))
    return Comparison(
        faults=(
            *_given_up(returned),
            *faults,
            *_accuracy_faults(overall, uniform_floor, aim.group_size),
            *_explained_faults(overall, start, aim),
            *_replaced_losses(returned),
        ),
        omissions=tuple(dict.fromkeys(omissions)),
        compared=bool(figures),
        estimated=returned.counts_noised or not all(figure.proved for figure in figures),
        better_than_guess_from=None if uniform_floor is None else _better_from(risk, uniform_floor),
        served=None if uniform_floor is None else served_groups(risk, uniform_floor),
        has_classes=not _has_no_classes(returned),
        unserved=None if uniform_floor is None else _unserved(split, risk, aim.group_size, uniform_floor),
        has_mean=aim.explains == 0.0 and _r_squared(risk) is not None,
    )


def state_of(comparison: Comparison) -> State:
    """Return the state of a verdict."""
    if any(fault.certain for fault in comparison.faults):
        return "worse"
    if comparison.faults:
        return "uncertain"
    if not comparison.compared:
        return "unknown"
    return "uncertain" if comparison.estimated else "fine"


@dataclass(frozen=True, slots=True)
class _Range:
    """A figure with the ends of its interval; an estimate where `proved` is false."""

    value: float
    lower: float
    upper: float
    proved: bool = True

    def is_above(self, limit: _Range) -> bool:
        """Return whether this is above the limit: the intervals are apart, or estimates that have none."""
        return self.lower > limit.upper + MARGIN


@dataclass(frozen=True, slots=True)
class _Overall:
    """The records that speak for a model, and what is known of them from before training.

    Attributes:
        split: their split.
        risk: the model's figures.
        returned: the whole evaluation.
        start_mean: the mean loss before training; None where it is not known of these records.
        start_worst: the worst group's risk before training, or why it is not known.
    """

    split: Split
    risk: SplitRisk
    returned: ReturnedEvaluation
    start_mean: float | None
    start_worst: _Range | Omission

    @property
    def counts(self) -> Sequence[int] | None:
        """The numbers of records of each class; None where they are not known."""
        return self.returned.class_counts.get(self.split)

    @property
    def certain(self) -> bool:
        """Whether means and counts are those of the records themselves."""
        return not (self.returned.counts_noised or self.returned.replaced)

    def protects(self, group_size: float, limit: float) -> bool:
        """Return whether the worst group surely fares better than a limit."""
        figure = _mixed(self.risk.worst(group_size), self.risk, 0.0)
        return figure is not None and figure.upper < limit - MARGIN


def _tail_faults(
    subject: SubjectName,
    split: Split,
    held: SplitRisk,
    figure: _Range,
    references: Mapping[ReferenceName, _Range | Omission | None],
    start: StartEvaluation | None,
) -> Iterator[FoundFault]:
    """Yield where a figure with the worst group in it is above a reference by more than chance explains."""
    guessing = references["uniform_guess"] is not None
    past_mean = _start_mean(start, split)
    if guessing and is_too_sure(held) is not True:
        return
    if not guessing and (past_mean is None or held.mean <= past_mean + MARGIN):
        return
    for reference, limit in references.items():
        if isinstance(limit, _Range) and figure.is_above(limit):
            certain = figure.proved and limit.proved
            yield FoundFault(subject, split, held.n, figure.value, reference, limit.value, certain)


def is_too_sure(risk: SplitRisk) -> bool | None:
    """Return whether all fare better by the model mixed with the guess; None where that is not known."""
    if risk.hedged is None:
        return None
    return risk.mean - risk.hedged > max(MATERIAL, mean_by_chance(risk.n))


def _mean_faults(overall: _Overall, guess: float, group_size: float) -> Iterator[FoundFault]:
    """Yield what the overall mean loss is above by more than chance explains."""
    risk, past = overall.risk, overall.start_worst
    chance = max(MARGIN, mean_by_chance(risk.n))
    found: list[tuple[ReferenceName, float, float]] = [("uniform_guess", guess, chance)]
    if overall.counts is not None and not overall.protects(group_size, guess):
        rate = best_constant_risk(overall.counts, 1.0, 1.0)
        found.append(("base_rate", rate, max(MARGIN, base_rate_by_chance(overall.counts))))
    protected = isinstance(past, _Range) and overall.protects(group_size, past.lower)
    if overall.start_mean is not None and not protected:
        found.insert(0, ("start", overall.start_mean, chance))
    least = risk.mean if risk.mean_likely is None else risk.mean_likely[0]
    for reference, limit, allowed in found:
        if least > limit + allowed:
            yield FoundFault("mean", overall.split, risk.n, risk.mean, reference, limit, overall.certain)


def _unserved(split: Split, risk: SplitRisk, group_size: float, guess: float) -> Unserved | None:
    """Return the worst group where it fares no better than by guessing: surely, or by the estimates."""
    figure = _mixed(risk.worst(group_size), risk, 0.0)
    if figure is None or figure.lower <= guess - MARGIN:
        return None
    too_sure = is_too_sure(risk)
    return Unserved(split, risk.n, figure.value, guess, None if too_sure is None else not too_sure)


def _exactly(value: float | None) -> _Range | None:
    return None if value is None else _Range(value, value, value)


def _has_no_classes(returned: ReturnedEvaluation) -> bool:
    """Return whether the evaluated records have no classes, so that no constant class is a reference."""
    return returned.train.accuracy is None


def _start_mean(start: StartEvaluation | None, split: Split) -> float | None:
    """Return the mean loss before training; None where it is not known of these very records."""
    past = None if start is None else start.moment.train if split == "train" else start.moment.test
    return None if past is None or start is None or not start.same_records.get(split, False) else past.mean


def _start(mixture: Aim, start: StartEvaluation | None, split: Split) -> _Range | Omission:
    if start is None:
        return Omission(split, OmissionReason.NOT_EVALUATED)
    past = start.moment.train if split == "train" else start.moment.test
    if past is None or not start.same_records.get(split, False):
        return Omission(split, OmissionReason.OTHER_RECORDS)
    group = next((risk for size, risk in past.by_group_size.items() if float(size) == mixture.group_size), None)
    figure = _mixed(group, past, mixture.tradeoff)
    return Omission(split, OmissionReason.TOO_FEW_PEOPLE) if figure is None else figure


def _mixed(group: ReportedGroupRisk | None, risk: SplitRisk | PastRisk, tradeoff: float) -> _Range | None:
    """Return (1 - tradeoff) worst + tradeoff mean with its interval; None where the group is not reported."""
    if group is None or group.worst is None:
        return None
    ends = group.bound or group.likely or (group.worst, group.worst)
    means = risk.mean_likely or (risk.mean, risk.mean)
    pairs = ((group.worst, risk.mean), *zip(ends, means, strict=True))
    value, lower, upper = ((1.0 - tradeoff) * worst + tradeoff * mean for worst, mean in pairs)
    return _Range(value, lower, upper, proved=group.bound is not None)


def _accuracy_faults(overall: _Overall, guess: float | None, group_size: float) -> Iterator[FoundFault]:
    """Yield an accuracy below the share of the most frequent class, unless it buys the worst group something."""
    risk, counts = overall.risk, overall.counts
    if risk.accuracy is None or counts is None or (guess is not None and overall.protects(group_size, guess)):
        return
    share, common = majority_share(counts), max(range(len(counts)), key=lambda place: counts[place])
    named = risk.n if risk.confusion is None else risk.n - sum(row[common] for row in risk.confusion)
    most = risk.accuracy if risk.accuracy_likely is None else risk.accuracy_likely[1]
    if share - most > max(MARGIN, fewer_right_by_chance(named) / risk.n):
        yield FoundFault("accuracy", overall.split, risk.n, risk.accuracy, "majority", share, overall.certain)


def _explained_faults(overall: _Overall, start: StartEvaluation | None, aim: Aim) -> Iterator[FoundFault]:
    """Yield an R^2 below that of any right model of the loss, unless that buys the worst group something."""
    risk, past = overall.risk, overall.start_worst
    explained, least = _r_squared(risk), aim.explains - _below_mean_by_chance(risk.n)
    if explained is None or explained >= least:
        return
    moment = None if start is None else start.moment.train if overall.split == "train" else start.moment.test
    # Whoever begins far from the targets serves every group better after the first steps.
    before = None if moment is None else _r_squared(moment)
    protected = isinstance(past, _Range) and overall.protects(aim.group_size, past.lower)
    if not (protected and before is not None and before >= least):
        limit: ReferenceName = "right_model" if aim.explains < 0.0 else "target_mean"
        yield FoundFault("r_squared", overall.split, risk.n, explained, limit, aim.explains, overall.certain)


def _r_squared(risk: SplitRisk | PastRisk) -> float | None:
    found = (risk.metrics or {}).get("r_squared")
    return found if isinstance(found, float) else None


def _below_mean_by_chance(records: int) -> float:
    """Return how far below 0 the R^2 of a good model may be: the means of two samples differ, figures are rounded.

    Squared, three standard errors of a mean of n are 9 / n variances; those of the training records are no more.
    Errors are rounded to 8 bits (`loss_metrics`), so that squares are known to 2^-7.
    """
    return max(MATERIAL, 18.0 / records)


def _given_up(returned: ReturnedEvaluation) -> Iterator[FoundFault]:
    if returned.given_up_after:
        certain = not returned.counts_noised
        yield FoundFault("training", None, 0, float(returned.given_up_after), "start", 0.0, certain)


def _replaced_losses(returned: ReturnedEvaluation) -> Iterator[FoundFault]:
    if returned.replaced:
        yield FoundFault("losses", None, 0, float(returned.replaced), "finite", 0.0, certain=True)


def _better_from(risk: SplitRisk, floor: float) -> float | None:
    """Return the smallest size whose worst group beats the guess; so does that of every larger size."""
    limit = floor * (1.0 - ROUNDING)
    sizes = [
        float(size)
        for size, group in risk.by_group_size.items()
        if group.worst is not None and (group.bound or group.likely or (0.0, group.worst))[1] < limit
    ]
    return min(sizes, default=None)
