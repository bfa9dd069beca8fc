"""The paper's claims, each decided on a data set: it holds, it does not hold, or it is not decided, and why.

C1, C2, C12 and C14 are exact, and `exact_checks.py` checks them on the study's own records and models. The
others compare repetitions (`comparison.py`), on training records unless they speak of people that no model has
seen. What counts as a difference is said before: a share of the loss of guessing. Nothing is tuned to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

import yaml
from pydantic import TypeAdapter

from fedfair.studies.reproduction.comparison import (
    LEVEL,
    RiskComparison,
    Values,
    Verdict,
    alike,
    not_above,
    not_above_level,
    verdict,
)
from fedfair.studies.reproduction.evidence import Evidence, Mark
from fedfair.studies.reproduction.exact_checks import ExactCheck
from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.runs import KNOWN_GROUP_SIZES, LOCAL_STEPS
from fedfair.studies.reproduction.study import Figure
from fedfair.studies.sweep.figures import Spread

TOLERANCE = 0.015
"""A risk is "not above" another if it exceeds it by less than this share of the loss of guessing (0.01 nats)."""

NEAR = 0.05
"""Two risks are "alike" if they are less than this share of the loss of guessing apart."""

SHARE_TOLERANCE = 0.01
"""The same for the distance between two compositions of groups, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, and the marks that decide it where it is no exact one.

    Attributes:
        name: such as C3.
        words: what it says.
        figure: whose marks it is about; None for a claim that is checked exactly.
        others: the methods that ours is compared with there.
        missing: what was not run where there is nothing to compare.
    """

    name: str
    words: str
    figure: Figure | None = None
    others: tuple[str, ...] = ()
    missing: str = ""


def _claims() -> dict[str, Claim]:
    text = files("fedfair.studies.reproduction").joinpath("claims.yaml").read_text(encoding="utf-8")
    rows = TypeAdapter(tuple[Claim, ...]).validate_python(yaml.safe_load(text))
    return {claim.name: claim for claim in rows}


CLAIMS: Mapping[str, Claim] = _claims()
"""The claims by their names."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict about one claim on one data set.

    Attributes:
        claim: its name.
        verdict: how it came out.
        reason: what decided it, or why nothing could; never empty.
        comparisons: all that were made.
    """

    claim: str
    verdict: Verdict
    reason: str
    comparisons: tuple[RiskComparison, ...] = ()


@dataclass(frozen=True, slots=True)
class Grounds:
    """The grounds on which claims are decided.

    Attributes:
        evidence: the marks.
        ours: the method that the claims are about.
        checks: the exact claims, by their names.
        distances: by the words of a worst group, for each repetition, how far its composition is from that of all
            (half the sum of the absolute differences of shares, 0 to 1).
    """

    evidence: Evidence
    ours: str
    checks: Mapping[str, ExactCheck]
    distances: Mapping[str, Values]


def decisions(grounds: Grounds) -> list[Decision]:
    """Return what became of every claim, in their order."""
    return [_decision(claim, grounds) for claim in CLAIMS.values()]


def _decision(claim: Claim, grounds: Grounds) -> Decision:
    check = grounds.checks.get(claim.name)
    if check is not None:
        return Decision(claim.name, Verdict.HOLDS if check.holds else Verdict.FAILS, check.sentence)
    made = _COMPARISONS.get(claim.name)
    if made is None:
        return Decision(claim.name, Verdict.UNDECIDED, "no model was there to check it on")
    found = tuple(made(grounds))
    if open_cells := _unfinished(claim, grounds):
        return Decision(
            claim.name, Verdict.UNDECIDED, f"unfinished runs are behind {open_cells} of its marks", found
        )
    if claim.name == "C4" and found and (better := _better_than_guessing(grounds)) is not None:
        return Decision(claim.name, Verdict.UNDECIDED, better, found)
    came_out = verdict(found)
    reason = _reason(came_out, found) if found else f"{claim.missing} not run at this size"
    return Decision(claim.name, came_out, reason, found)


def _reason(came_out: Verdict, found: Sequence[RiskComparison]) -> str:
    if came_out is Verdict.FAILS:
        against = min((one for one in found if one.fails is not None), key=lambda one: one.fails or 0.0)
        return f"{against.sentence} (p = {against.fails:.2g} before Holm's correction)"
    if came_out is Verdict.HOLDS:
        nearest = max(found, key=lambda one: one.holds or 0.0)
        count = "the comparison" if len(found) == 1 else f"all {len(found)} comparisons; the nearest"
        return f"{count}: {nearest.sentence} (p = {nearest.holds:.2g})"
    unknown = [one for one in found if one.holds is None]
    if unknown:
        return f"one repetition has no error: {unknown[0].sentence}"
    open_ones = [one for one in found if (one.holds or 0.0) > LEVEL]
    most = max(open_ones, key=lambda one: one.holds or 0.0)
    return (
        f"the repetitions leave {len(open_ones)} of {len(found)} comparisons open, this one most: "
        f"{most.sentence} (p = {most.holds:.2g})"
    )


def _unfinished(claim: Claim, grounds: Grounds) -> int:
    """Return how many marks that the claim is about have no result: others alone could flatter it."""
    methods = {grounds.ours, *claim.others}
    return sum(cell.figure is claim.figure and cell.method in methods for cell in grounds.evidence.missing)


# ------------------------------------------------------------------------------------------------ one claim each


def _meet(grounds: Grounds) -> Iterator[RiskComparison]:
    sizes = _sizes(grounds)
    if not sizes or sizes[-1] < 0.7:
        return
    for ours, theirs in _pairs(grounds, "C3", sizes[-1:]):
        yield _alike(ours, theirs)


def _no_worse_than_guessing(grounds: Grounds) -> Iterator[RiskComparison]:
    for ours in _baseline(grounds, grounds.ours, _sizes(grounds)[:1]):
        values = ours.worst_values("train")
        sentence = f"{_place(ours, 'train')}: {_worst(ours, 'train')}, guessing {ours.uniform_floor:.3f}"
        yield not_above_level(sentence, values, ours.uniform_floor, TOLERANCE * ours.uniform_floor)


def _better_than_guessing(grounds: Grounds) -> str | None:
    """Return why C4 says nothing here: even the smallest group is large enough to be served."""
    for ours in _baseline(grounds, grounds.ours, _sizes(grounds)[:1]):
        floor, values = ours.uniform_floor, ours.worst_values("train")
        served = not_above_level("", values, (1.0 - 2.0 * TOLERANCE) * floor, 0.0)
        if served.holds is not None and served.holds <= LEVEL:
            size = ours.cell.group_size
            return (
                f"a group of {size:.0%} is above the critical size here: {_worst(ours, 'train')} on training "
                f"records, guessing {floor:.3f}; smaller groups were not run"
            )
    return None


def _fan(grounds: Grounds) -> Iterator[RiskComparison]:
    marks = grounds.evidence.of(Figure.TRADEOFFS, method=grounds.ours)
    for size in sorted({mark.cell.group_size for mark in marks}):
        fan = sorted((mark for mark in marks if mark.cell.group_size == size), key=_tradeoff)
        if len(fan) < 2:
            continue
        first, last = fan[0], fan[-1]
        margin, ends = TOLERANCE * first.uniform_floor, f"tradeoffs {_tradeoff(first):g} and {_tradeoff(last):g}"
        lower = f"{_place(first, 'train')}, {ends}: {_worst(first, 'train')} and {_worst(last, 'train')}"
        yield not_above(lower, first.worst_values("train"), last.worst_values("train"), margin)
        if size < 1.0:
            means = f"mean, train, {ends} at {size:.0%}: {_mean(first)} and {_mean(last)}"
            yield not_above(means, last.values("train", "mean"), first.values("train", "mean"), margin)


def _not_above_others(grounds: Grounds, split: str) -> Iterator[RiskComparison]:
    for ours, theirs in _pairs(grounds, "C6", _sizes(grounds)):
        yield _not_above(ours, theirs, split)


def _local_steps(grounds: Grounds) -> Iterator[RiskComparison]:
    marks = grounds.evidence.of(Figure.LOCAL_STEPS, method=grounds.ours)
    one = {mark.cell.group_size: mark for mark in marks if mark.cell.local_steps == LOCAL_STEPS[0]}
    ten = {mark.cell.group_size: mark for mark in marks if mark.cell.local_steps == LOCAL_STEPS[-1]}
    sizes = sorted(one.keys() & ten.keys())
    if not sizes:
        return
    small, large = sizes[0], sizes[-1]
    steps, margin = f"{LOCAL_STEPS[0]} and {LOCAL_STEPS[-1]} local steps", TOLERANCE * one[small].uniform_floor
    sentence = (
        f"{_place(one[small], 'train')}, {steps}: {_worst(one[small], 'train')} and {_worst(ten[small], 'train')}"
    )
    yield not_above(sentence, one[small].worst_values("train"), ten[small].worst_values("train"), margin)
    if large > small:
        costs = {size: _differences(ten[size], one[size]) for size in (small, large)}
        told = " and ".join(written(Spread.of(costs[size])) for size in (small, large) if costs[size])
        sentence = (
            f"cost of {LOCAL_STEPS[-1]} local steps for the worst {small:.0%} and {large:.0%}, train: {told}"
        )
        yield not_above(sentence, costs[large], costs[small], margin)


def _central(grounds: Grounds) -> Iterator[RiskComparison]:
    for ours, theirs in _pairs(grounds, "C9", _sizes(grounds)):
        yield _alike(ours, theirs)
        if theirs.cell.method == "dro":
            sentence = f"mean, train, for the worst {ours.cell.group_size:.0%}: {_mean(ours)}, DRO {_mean(theirs)}"
            margin = TOLERANCE * ours.uniform_floor
            yield not_above(sentence, ours.values("train", "mean"), theirs.values("train", "mean"), margin)


def _wrong_groups(grounds: Grounds) -> Iterator[RiskComparison]:
    for size in KNOWN_GROUP_SIZES:
        known = grounds.evidence.of(Figure.KNOWN_GROUPS, group_size=size)
        for ours in [mark for mark in known if mark.cell.method == grounds.ours]:
            for theirs in [mark for mark in known if mark.cell.method == "fedminmax"]:
                yield _not_above(ours, theirs, "test")


def _local_thresholds(grounds: Grounds) -> Iterator[RiskComparison]:
    marks = grounds.evidence.of(Figure.LOCAL_THRESHOLDS)
    for theirs in [mark for mark in marks if mark.cell.method == "localbpf"]:
        for ours in [mark for mark in marks if mark.cell.method != "localbpf"]:
            yield _not_above(ours, theirs, "train")


def _like_the_population(grounds: Grounds) -> Iterator[RiskComparison]:
    words = list(grounds.distances)
    if len(words) < 2:
        return
    small, large = words[0], words[-1]
    told = " and ".join(f"{name} {written(Spread.of(grounds.distances[name]))}" for name in (small, large))
    sentence = f"distance of the members' groups and labels from those of all: {told}"
    yield not_above(sentence, grounds.distances[large], grounds.distances[small], SHARE_TOLERANCE)


_COMPARISONS: Mapping[str, Callable[[Grounds], Iterator[RiskComparison]]] = {
    "C3": _meet,
    "C4": _no_worse_than_guessing,
    "C5": _fan,
    "C6": partial(_not_above_others, split="train"),
    "C7": partial(_not_above_others, split="test"),
    "C8": _local_steps,
    "C9": _central,
    "C10": _wrong_groups,
    "C11": _local_thresholds,
    "C13": _like_the_population,
}


# -------------------------------------------------------------------------------------------------- their parts


def _sizes(grounds: Grounds) -> list[float]:
    marks = grounds.evidence.of(Figure.BASELINES, method=grounds.ours)
    return sorted({mark.cell.group_size for mark in marks})


def _baseline(grounds: Grounds, method: str, sizes: Sequence[float]) -> list[Mark]:
    return [
        mark for size in sizes for mark in grounds.evidence.of(Figure.BASELINES, method=method, group_size=size)
    ]


def _pairs(grounds: Grounds, claim: str, sizes: Sequence[float]) -> Iterator[tuple[Mark, Mark]]:
    for size in sizes:
        for name in CLAIMS[claim].others:
            for ours in _baseline(grounds, grounds.ours, [size]):
                for theirs in _baseline(grounds, name, [size]):
                    yield ours, theirs


def _not_above(ours: Mark, theirs: Mark, split: str) -> RiskComparison:
    values = theirs.worst_values(split, ours.cell.group_size)
    return not_above(_both(ours, theirs, split), ours.worst_values(split), values, TOLERANCE * ours.uniform_floor)


def _alike(ours: Mark, theirs: Mark) -> RiskComparison:
    values = theirs.worst_values("train", ours.cell.group_size)
    return alike(_both(ours, theirs, "train"), ours.worst_values("train"), values, NEAR * ours.uniform_floor)


def _both(ours: Mark, theirs: Mark, split: str) -> str:
    label = METHODS[theirs.cell.method].label
    return f"{_place(ours, split)}: {_worst(ours, split)}, {label} {_worst(theirs, split)}"


def _place(mark: Mark, split: str) -> str:
    return f"worst {mark.cell.group_size:.0%}, {split}"


def _worst(mark: Mark, split: str) -> str:
    value = mark.worst(split)
    return "nothing" if value is None else written(value)


def _mean(mark: Mark) -> str:
    value = mark.train.get("mean")
    return "nothing" if value is None else written(value)


def _tradeoff(mark: Mark) -> float:
    return mark.cell.tradeoff or 0.0


def _differences(one: Mark, other: Mark) -> Values:
    return [a - b for a, b in zip(one.worst_values("train"), other.worst_values("train"), strict=False)]


def written(value: Spread) -> str:
    """Return a mean and its standard error as text."""
    return (
        f"{value.mean:.3f}" if value.standard_error is None else f"{value.mean:.3f} ± {value.standard_error:.3f}"
    )
