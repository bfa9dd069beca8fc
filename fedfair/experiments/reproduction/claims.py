"""The paper's claims about its figures, held against ours: each comes out as seen, as not seen, or as undecided.

A difference counts when it is larger than two standard errors of the difference of the two means; everything
smaller is "no difference that these repetitions could tell", and so is every difference of single runs, whose
error nobody knows. Nothing here is tuned to agree: that no difference was seen proves no claim, not even that two
methods are alike.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fedfair.experiments.reproduction.evidence import Evidence, Mark
from fedfair.experiments.reproduction.runs import LOCAL_STEPS
from fedfair.experiments.reproduction.study import Figure
from fedfair.experiments.sweep.figures import Spread

ERRORS = 2.0
"""How many standard errors a difference must have to count."""


class Verdict(enum.StrEnum):
    """The outcome of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, at one place.

    Attributes:
        claim: the claim's short name, C5 to C9.
        sentence: what was compared, with the numbers.
        verdict: how it came out.
    """

    claim: str
    sentence: str
    verdict: Verdict


def findings(evidence: Evidence) -> list[Finding]:
    """Return what the evidence says about the claims that its figures speak to."""
    return [
        *_not_above_baselines(evidence),
        *_close_to_central(evidence),
        *_fan(evidence),
        *_local_steps(evidence),
    ]


def _not_above_baselines(evidence: Evidence) -> Iterator[Finding]:
    """C6: at a tradeoff of about 0, the training worst-group risk is not above that of FedAvg and AFL."""
    for ours in evidence.of(Figure.BASELINES, method="fedsrcvar"):
        for name in ("fedavg", "afl", "fedminmax"):
            for split in ("train", "test"):
                yield from _compared("C6", ours, _same(evidence, ours, name), split)


def _close_to_central(evidence: Evidence) -> Iterator[Finding]:
    """C9: the worst-group risk is that of the centralised BPF and DRO; a difference to either side is reported."""
    for ours in evidence.of(Figure.BASELINES, method="fedsrcvar"):
        for name in ("bpf", "dro"):
            yield from _compared("C9", ours, _same(evidence, ours, name), "test")


def _fan(evidence: Evidence) -> Iterator[Finding]:
    """C5: with a fixed group size, more weight on the mean never lowers the training worst-group risk."""
    for size in sorted({mark.cell.group_size for mark in evidence.of(Figure.TRADEOFFS)}):
        fan = sorted(evidence.of(Figure.TRADEOFFS, group_size=size), key=lambda mark: mark.cell.tradeoff or 0.0)
        if len(fan) > 1:
            yield from _ordered(
                "C5", fan[0], fan[-1], f"tradeoff {fan[0].cell.tradeoff} and {fan[-1].cell.tradeoff}"
            )


def _local_steps(evidence: Evidence) -> Iterator[Finding]:
    """C8: more local steps do not lower the worst-group risk of the smallest group size."""
    first, *_, last = LOCAL_STEPS
    sizes = sorted({mark.cell.group_size for mark in evidence.of(Figure.LOCAL_STEPS, method="fedsrcvar")})
    for size in sizes[:1]:
        one = evidence.of(Figure.LOCAL_STEPS, method="fedsrcvar", group_size=size, local_steps=first)
        ten = evidence.of(Figure.LOCAL_STEPS, method="fedsrcvar", group_size=size, local_steps=last)
        if one and ten:
            yield from _ordered("C8", one[0], ten[0], f"{first} and {last} local steps")


def _same(evidence: Evidence, ours: Mark, method: str) -> Iterable[Mark]:
    return evidence.of(Figure.BASELINES, method=method, group_size=ours.cell.group_size)


def _compared(claim: str, ours: Mark, others: Iterable[Mark], split: str) -> Iterator[Finding]:
    for theirs in others:
        one, other = ours.worst(split), theirs.worst(split)
        if one is None or other is None:
            continue
        sentence = (
            f"worst {ours.cell.group_size:.0%}, {split}: {ours.cell.method} {written(one)}, "
            f"{theirs.cell.method} {written(other)}"
        )
        yield Finding(claim, sentence, below(one, other))


def _ordered(claim: str, first: Mark, last: Mark, what: str) -> Iterator[Finding]:
    one, other = first.worst("train"), last.worst("train")
    if one is not None and other is not None:
        size = first.cell.group_size
        yield Finding(
            claim, f"worst {size:.0%}, train, {what}: {written(one)} and {written(other)}", below(one, other)
        )


def below(one: Spread, other: Spread) -> Verdict:
    """Return whether the first mean is the smaller one, as far as the repetitions can tell."""
    if one.standard_error is None or other.standard_error is None:
        return Verdict.UNDECIDED
    error = math.hypot(one.standard_error, other.standard_error)
    difference = one.mean - other.mean
    if abs(difference) <= ERRORS * error:
        return Verdict.UNDECIDED
    return Verdict.HOLDS if difference < 0 else Verdict.FAILS


def written(value: Spread) -> str:
    """Return a mean and its standard error as text."""
    return (
        f"{value.mean:.3f}" if value.standard_error is None else f"{value.mean:.3f} ± {value.standard_error:.3f}"
    )
