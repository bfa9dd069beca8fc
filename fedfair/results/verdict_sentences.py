"""Says a verdict in plain sentences: one for all, one for each figure that is worse, and what was not compared.

Decides the words and the rounding. Whether there is a fault is `verdict.py`'s business, what to try `advice.py`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from fedfair.plan.derived import minimises_objective, rounds_before
from fedfair.plan.description import percent
from fedfair.plan.learning_rates import rate_factor
from fedfair.plan.schema import Plan
from fedfair.results.advice import LARGEST, AskFamily, FamilyFacts, RunAdvice, advised
from fedfair.results.loss_text import loss_text
from fedfair.results.served_groups import family_sentence, served_sentence
from fedfair.results.training_trend import Evaluated, TrainingTrend, training_trend
from fedfair.results.verdict import (
    Comparison,
    FoundFault,
    OmissionReason,
    RunVerdict,
    VerdictFinding,
    state_of,
)
from fedfair.run.which_model import UNTRAINED
from fedfair.templates import sentences as template_lines

UNEVALUATED = RunVerdict(
    state="unknown",
    findings=(),
    better_than_guess_from=None,
    sentences=("Nothing was evaluated, so whether this model is worse than guessing is not known.",),
)
"""The verdict on a model that no sum was made about."""

_RECORDS = {"train": "training records", "test": "test records"}


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about a run, beside its verdict, that advice follows from.

    Attributes:
        history: the figure that the plan's algorithm minimises, at every evaluation from round 0 on.
        reached: the same of the returned model.
        counts: records of each class among those that speak for the model; nothing where they are not known.
        family: asked just where there is something to advise; None where unknown.
    """

    history: tuple[Evaluated, ...] = ()
    reached: float = 0.0
    counts: tuple[int, ...] = ()
    family: AskFamily | None = None


NOTHING_KNOWN = Known()


def worded(comparison: Comparison, plan: Plan, known: Known = NOTHING_KNOWN) -> RunVerdict:
    """Return the verdict of a comparison.

    Args:
        comparison: of the model that the run returned.
        plan: the plan of the run, for its values and what to try instead.
        known: what advice follows from.
    """
    size = plan.objective.worst_group_size
    sentences = [_said("opening", size, **_opening(comparison)), *_fault_sentences(comparison, size)]
    advice = None
    if comparison.faults or comparison.unserved is not None:
        family = None if known.family is None else known.family()
        trend = _trend(plan, known, family)
        advice = advised(plan, comparison, trend, family, known.counts)
        sentences[0] = _said("opening", size, **_opening(comparison, _remedies(advice)))
        sentences += _reasons(comparison, plan, trend, family, advice)
    sentences += dict.fromkeys(_said("omission", size, omission=one) for one in comparison.omissions)
    verdict = RunVerdict(
        state=state_of(comparison),
        findings=tuple(_finding(fault, size) for fault in comparison.faults),
        better_than_guess_from=comparison.better_than_guess_from,
        sentences=tuple(sentences),
    )
    return verdict.model_copy(update={"remedies": advice.remedies}) if advice and advice.remedies else verdict


def _said(part: str, size: float, **values: object) -> str:
    """Return the one sentence of a part of a verdict."""
    return _said_all(part, size, **values)[0]


def _said_all(part: str, size: float, **values: object) -> tuple[str, ...]:
    """Return the sentences of a part of a verdict; `size` is the plan's worst_group_size."""
    shown: dict[str, object] = {
        "size": percent(size),
        "whose": _RECORDS,
        "loss": loss_text,
        "untrained": UNTRAINED,
        "reasons": OmissionReason,
        "largest": percent(LARGEST),
    }
    return template_lines("fedfair.results", "verdict.txt.jinja", part=part, **shown, **values)


def _trend(plan: Plan, known: Known, family: FamilyFacts | None) -> TrainingTrend:
    first = rounds_before(plan) + 1
    optimum = None if family is None else family.optimum
    return training_trend(
        known.history, lambda number: rate_factor(plan, max(number, first)), known.reached, optimum
    )


def _remedies(advice: RunAdvice) -> list[str]:
    return [f"{one.key}: {one.wanted} (now {one.now})" for one in advice.remedies]


def _reasons(
    comparison: Comparison, plan: Plan, trend: TrainingTrend, family: FamilyFacts | None, advice: RunAdvice
) -> Iterator[str]:
    """Yield whom the model does not serve, how training went, and which group could be served."""
    size = plan.objective.worst_group_size
    blamed = {fault.subject for fault in comparison.faults}
    if comparison.unserved is not None and "worst_group" not in blamed:
        yield _said("unserved", size, found=comparison.unserved, certain=not comparison.estimated)
    yield from _served(comparison, size, family, advice)
    minimised = "The objective" if minimises_objective(plan) else "The mean training loss"
    yield from _said_all("trend", size, trend=trend, minimised=minimised, too_small=advice.too_small)
    if not comparison.faults and advice.remedies:
        yield _said("remedies", size, remedies=_remedies(advice))


def _served(comparison: Comparison, size: float, family: FamilyFacts | None, advice: RunAdvice) -> Iterator[str]:
    """Yield which groups are served; of this model only what does not speak against a size that is proposed."""
    if comparison.served is None or (comparison.unserved is None and not advice.too_small):
        return
    lowest, served_from = None if family is None else family.lowest, comparison.served.sizes.served_from
    if advice.size is None or (served_from is not None and advice.size > served_from):
        yield served_sentence(comparison.served, group_size=size, family_lowest=lowest)
    elif lowest is not None:
        yield from family_sentence(lowest)
    yield from _said_all("size", size, advice=advice)


def _opening(comparison: Comparison, remedies: Sequence[str] = ()) -> dict[str, object]:
    """Return what the first sentence is made of."""
    return {
        "comparison": comparison,
        "state": state_of(comparison),
        "remedies": remedies,
        "compared": _compared(comparison),
    }


def _compared(comparison: Comparison) -> list[str]:
    """Return what the model was compared with."""
    reasons = {omission.why for omission in comparison.omissions}
    words = [] if comparison.served is None else ["the uniform guess"]
    if not reasons & {OmissionReason.NOT_EVALUATED, OmissionReason.OTHER_RECORDS}:
        words.insert(0, "before training")
    if comparison.has_classes and OmissionReason.NO_CLASS_COUNTS not in reasons:
        words += ["the base rate", "the most frequent class"]
    return words + (["always predicting the mean"] if comparison.has_mean else [])


def _finding(fault: FoundFault, size: float) -> VerdictFinding:
    told = {name: value for name, value in asdict(fault).items() if name != "records"}
    return VerdictFinding(**told, sentence=_said("fault", size, faults=[fault]))


def _fault_sentences(comparison: Comparison, size: float) -> Iterator[str]:
    """Yield one sentence for each figure, with everything that it is worse than."""
    for _, faults in itertools.groupby(comparison.faults, lambda fault: (fault.subject, fault.certain)):
        yield _said("fault", size, faults=[*faults])
