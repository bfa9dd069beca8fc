"""Decides whether a run did harm: whether its model is worse than what could be had without training it.

    subject          records                      compared with
    objective        training                     round 0, the uniform guess, the best constant prediction
    worst group      held-out, or else training   the same three, at the plan's group size
    accuracy         as the worst group           the share of the most frequent class
    losses           all                          none may have been replaced
    training         -                            must have led to a model that is returned

A finding is a fault that the evaluations show: a figure worse than its reference by more than `MARGIN`. It is
certain where intervals prove it: the lower end of the model's figure is above the upper end of the reference's.
Figures under noise for differential privacy, and figures of sums with replaced losses, have no interval. They are
estimates whose error nobody states: a finding by them is not certain, and without one nothing is proved either.
Risks that are not reported (`evaluation.min_group`) are not compared, and the verdict lists what was not. Figures
are those of the result itself, so that a verdict tells nothing that the result does not. The sentences are
`verdict_words.py`'s. No torch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from fedfair.fairness.constant_prediction import best_constant_risk, majority_share
from fedfair.results.risks import Moment, ReportedGroupRisk, SplitRisk
from fedfair.results.scores import FROZEN
from fedfair.results.served_groups import ServedGroups, served_groups

MARGIN = 0.001
"""A smaller difference of losses (nats) or shares is not told: result pages and tables show thousandths."""

State: TypeAlias = Literal["fine", "worse", "uncertain", "unknown"]
SubjectName: TypeAlias = Literal["training", "objective", "worst_group", "accuracy", "losses"]
ReferenceName: TypeAlias = Literal["start", "uniform_guess", "best_constant", "majority", "finite"]
Split: TypeAlias = Literal["train", "test"]


class VerdictFinding(BaseModel):
    """One fault of a model."""

    model_config = FROZEN

    subject: SubjectName = Field(description="training, objective, worst_group, accuracy or losses")
    split: Split | None = Field(description="the split whose records it is about; null for all of them")
    value: float = Field(description="the model's figure: nats, a share, or a number of losses or rounds")
    reference: ReferenceName = Field(
        description="start (round 0), uniform_guess, best_constant, majority, or finite (losses)"
    )
    limit: float = Field(description="the reference's figure, in the same unit")
    certain: bool = Field(description="whether intervals prove it; false where the figures are estimates")
    sentence: str = Field(description="the same in words")


class RunVerdict(BaseModel):
    """Whether the model is worse than what could be had without training it."""

    model_config = FROZEN

    state: State = Field(
        description="worse (do not use the model as it is), fine (no fault), uncertain (figures are estimates), "
        "unknown (nothing could be compared)"
    )
    findings: tuple[VerdictFinding, ...] = Field(description="every fault; empty where there is none")
    better_than_guess_from: float | None = Field(
        description="the smallest reported group size from which on the worst group fares better than the uniform "
        "guess; null where no size does"
    )
    sentences: tuple[str, ...] = Field(description="the whole verdict in words; the first sentence speaks for all")


@dataclass(frozen=True, slots=True)
class Aim:
    """The plan's aim.

    Attributes:
        group_size: of the worst group (rho), in (0, 1].
        tradeoff: weight of the mean (epsilon), in [0, 1].
    """

    group_size: float
    tradeoff: float


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
    """The evaluation of the model that the run returned.

    Where that is the model before training, because training made it worse, it is the evaluation of the last model
    that was trained: a run must not be silent about it.

    Attributes:
        train: risks over training records.
        test: over held-out records; None where there are none.
        class_counts: records of each class, by split; a split without an entry has too many classes to be counted.
        counts_noised: whether these numbers, and the accuracy, carry noise.
        replaced: losses that were replaced because they were not finite or too large.
        given_up_after: rounds that led to the evaluated model, where the one before training is returned in its
            place; 0 where it is returned itself.
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
    """

    faults: tuple[FoundFault, ...]
    omissions: tuple[Omission, ...]
    compared: bool
    estimated: bool
    better_than_guess_from: float | None
    served: ServedGroups | None
    has_classes: bool = True


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
    mixtures: list[tuple[SubjectName, Split, SplitRisk, Aim]] = [
        ("objective", "train", returned.train, aim),
        ("worst_group", split, risk, Aim(aim.group_size, 0.0)),
    ]
    faults: list[FoundFault] = []
    omissions: list[Omission] = []
    figures: list[_Range] = []
    for subject, place, held, mixture in mixtures:
        figure = _mixed(held.worst(mixture.group_size), held.mean, mixture.tradeoff)
        if figure is None:
            omissions.append(Omission(place, OmissionReason.TOO_FEW_PEOPLE))
            continue
        figures.append(figure)
        for reference, limit in _references(mixture, uniform_floor, start, returned, place):
            if isinstance(limit, Omission):
                omissions.append(limit)
            elif figure.is_above(limit):
                certain = figure.proved and limit.proved
                faults.append(FoundFault(subject, place, held.n, figure.value, reference, limit.value, certain))
    return Comparison(
        faults=(*_given_up(returned), *faults, *_accuracy_faults(returned), *_replaced_losses(returned)),
        omissions=tuple(dict.fromkeys(omissions)),
        compared=bool(figures),
        estimated=returned.counts_noised or not all(figure.proved for figure in figures),
        better_than_guess_from=None if uniform_floor is None else _better_from(risk, uniform_floor),
        served=None if uniform_floor is None else served_groups(risk, uniform_floor),
        has_classes=not _has_no_classes(returned),
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
        """Return whether this is above the limit: surely, where intervals tell, or by the estimates."""
        if self.proved and limit.proved:
            return self.lower > limit.upper + MARGIN
        return self.value > limit.value + MARGIN


def _references(
    mixture: Aim,
    uniform_floor: float | None,
    start: StartEvaluation | None,
    returned: ReturnedEvaluation,
    split: Split,
) -> Iterator[tuple[ReferenceName, _Range | Omission]]:
    """Yield what a mixture of the worst group's risk and the mean is compared with."""
    yield "start", _start(mixture, start, split)
    if uniform_floor is None:
        return
    yield "uniform_guess", _Range(uniform_floor, uniform_floor, uniform_floor)
    if _has_no_classes(returned):
        return
    counts = returned.class_counts.get(split)
    if counts is None:
        yield "best_constant", Omission(split, OmissionReason.NO_CLASS_COUNTS)
        return
    least = best_constant_risk(counts, mixture.group_size, mixture.tradeoff)
    yield "best_constant", _Range(least, least, least, proved=not returned.counts_noised)


def _has_no_classes(returned: ReturnedEvaluation) -> bool:
    """Return whether the evaluated records have no classes, so that no constant class is a reference."""
    return returned.train.accuracy is None


def _start(mixture: Aim, start: StartEvaluation | None, split: Split) -> _Range | Omission:
    if start is None:
        return Omission(split, OmissionReason.NOT_EVALUATED)
    past = start.moment.train if split == "train" else start.moment.test
    if past is None or not start.same_records.get(split, False):
        return Omission(split, OmissionReason.OTHER_RECORDS)
    group = next((risk for size, risk in past.by_group_size.items() if float(size) == mixture.group_size), None)
    figure = _mixed(group, past.mean, mixture.tradeoff)
    return Omission(split, OmissionReason.TOO_FEW_PEOPLE) if figure is None else figure


def _mixed(group: ReportedGroupRisk | None, mean: float, tradeoff: float) -> _Range | None:
    """Return (1 - tradeoff) worst + tradeoff mean with its interval; None where the group is not reported."""
    if group is None or group.worst is None:
        return None
    ends = group.bound or (group.worst, group.worst)
    value, lower, upper = ((1.0 - tradeoff) * worst + tradeoff * mean for worst in (group.worst, *ends))
    return _Range(value, lower, upper, proved=group.bound is not None)


def _accuracy_faults(returned: ReturnedEvaluation) -> Iterator[FoundFault]:
    split, risk = returned.shown
    counts = returned.class_counts.get(split)
    share = 0.0 if counts is None else majority_share(counts)
    if risk.accuracy is not None and risk.accuracy < share - MARGIN:
        certain = not returned.counts_noised
        yield FoundFault("accuracy", split, risk.n, risk.accuracy, "majority", share, certain)


def _given_up(returned: ReturnedEvaluation) -> Iterator[FoundFault]:
    if returned.given_up_after:
        certain = not returned.counts_noised
        yield FoundFault("training", None, 0, float(returned.given_up_after), "start", 0.0, certain)


def _replaced_losses(returned: ReturnedEvaluation) -> Iterator[FoundFault]:
    if returned.replaced:
        yield FoundFault("losses", None, 0, float(returned.replaced), "finite", 0.0, certain=True)


def _better_from(risk: SplitRisk, floor: float) -> float | None:
    """Return the smallest size whose worst group beats the guess; so does that of every larger size."""
    sizes = [
        float(size)
        for size, group in risk.by_group_size.items()
        if group.worst is not None and (group.worst if group.bound is None else group.bound[1]) < floor
    ]
    return min(sizes, default=None)
