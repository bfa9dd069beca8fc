"""Says a verdict in plain sentences: one for all, one for each figure that is worse, and what was not compared.

Decides the words and the rounding. Whether there is a fault is `verdict.py`'s business, what to try `advice.py`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedfair.plan.derived import minimises_objective, rounds_before
from fedfair.plan.description import percent
from fedfair.plan.learning_rates import rate_factor
from fedfair.plan.schema import Plan
from fedfair.results.advice import LARGEST, AskFamily, FamilyFacts, RunAdvice, advised
from fedfair.results.loss_text import loss_text
from fedfair.results.served_groups import family_sentence, served_sentence
from fedfair.results.training_trend import Evaluated, TrainingTrend, Trend, training_trend
from fedfair.results.verdict import (
    Comparison,
    FoundFault,
    Omission,
    OmissionReason,
    RunVerdict,
    Unserved,
    VerdictFinding,
    state_of,
)
from fedfair.run.which_model import UNTRAINED

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
        family: asked just where there is something to advise; None where nobody can tell.
    """

    history: tuple[Evaluated, ...] = ()
    reached: float = 0.0
    counts: tuple[int, ...] = ()
    family: AskFamily | None = None


NOTHING_KNOWN = Known()


def worded(comparison: Comparison, plan: Plan, known: Known = NOTHING_KNOWN) -> RunVerdict:
    """Return the verdict that a comparison comes to.

    Args:
        comparison: of the model that the run returned.
        plan: the plan of the run, for its values and what to try instead.
        known: what advice follows from.
    """
    size = plan.objective.worst_group_size
    findings = tuple(_finding(fault, size) for fault in comparison.faults)
    sentences = [_opening(comparison), *_fault_sentences(comparison, size)]
    verdict = RunVerdict(
        state=state_of(comparison),
        findings=findings,
        better_than_guess_from=comparison.better_than_guess_from,
        sentences=(),
    )
    advice = None
    if comparison.faults or comparison.unserved is not None:
        family = None if known.family is None else known.family()
        trend = _trend(plan, known, family)
        advice = advised(plan, comparison, trend, family, known.counts)
        sentences[0] = _with_remedies(sentences[0], comparison, advice)
        sentences += _reasons(comparison, plan, trend, family, advice)
    sentences += dict.fromkeys(_omission(omission, size) for omission in comparison.omissions)
    told: dict[str, object] = {"sentences": tuple(sentences)}
    if advice is not None and advice.remedies:
        told["remedies"] = advice.remedies
    return verdict.model_copy(update=told)


def _trend(plan: Plan, known: Known, family: FamilyFacts | None) -> TrainingTrend:
    first = rounds_before(plan) + 1
    optimum = None if family is None else family.optimum
    return training_trend(
        known.history, lambda number: rate_factor(plan, max(number, first)), known.reached, optimum
    )


def _with_remedies(opening: str, comparison: Comparison, advice: RunAdvice) -> str:
    """Return the first sentence with what to try, where it says not to use the model."""
    if not comparison.faults or not advice.remedies:
        return opening
    return f"{opening[:-1]}; try {_remedies(advice)}."


def _remedies(advice: RunAdvice) -> str:
    return _listed([f"{one.key}: {one.wanted} (now {one.now})" for one in advice.remedies])


def _reasons(
    comparison: Comparison, plan: Plan, trend: TrainingTrend, family: FamilyFacts | None, advice: RunAdvice
) -> Iterator[str]:
    """Yield whom the model does not serve, how training went, and which group could be served."""
    size = plan.objective.worst_group_size
    blamed = {fault.subject for fault in comparison.faults}
    if comparison.unserved is not None and "worst_group" not in blamed:
        yield _unserved(comparison.unserved, size, certain=not comparison.estimated)
    yield from _served(comparison, size, family, advice)
    yield from _trend_sentence(trend, plan, too_small=advice.too_small)
    if not comparison.faults and advice.remedies:
        yield f"To serve the worst group better than by guessing, try {_remedies(advice)}."


def _unserved(found: Unserved, size: float, *, certain: bool) -> str:
    sentence = (
        f"The worst {percent(size)} of {found.records} {_RECORDS[found.split]} have a mean loss of "
        f"{loss_text(found.value)}, and the uniform guess has {loss_text(found.guess)}"
    )
    if not certain:
        return f"Estimated: {sentence[:1].lower()}{sentence[1:]}."
    if found.by_chance is None:
        return f"{sentence}."
    # It is chosen after the outcomes are known, so that even a perfect model has one.
    told = "chance may explain it" if found.by_chance else "chance does not explain it"
    return f"{sentence}; {told}."


def _served(comparison: Comparison, size: float, family: FamilyFacts | None, advice: RunAdvice) -> Iterator[str]:
    """Yield which groups are served; of this model only what does not speak against a size that is proposed."""
    if comparison.served is None or (comparison.unserved is None and not advice.too_small):
        return
    lowest, served_from = None if family is None else family.lowest, comparison.served.sizes.served_from
    if advice.size is None or (served_from is not None and advice.size > served_from):
        yield served_sentence(comparison.served, group_size=size, family_lowest=lowest)
    elif lowest is not None:
        yield from family_sentence(lowest)
    if advice.size is not None and not advice.proved:
        yield (
            "From which size on a model of this kind serves the worst group better than guessing is not known "
            "from these sums; fedfair plan advise finds it where records are in one place."
        )
    elif advice.too_small and advice.size is None:
        yield f"No group of up to {percent(LARGEST)} is known to be served better: the features tell too little."


def _trend_sentence(trend: TrainingTrend, plan: Plan, *, too_small: bool) -> Iterator[str]:
    """Yield how training went, as far as that is known."""
    figure = "The objective" if minimises_objective(plan) else "The mean training loss"
    before, end = trend.before, trend.end
    if trend.trend is Trend.OPTIMUM and end is not None and trend.optimum is not None:
        least = loss_text(trend.optimum)
        yield (
            f"{figure} is {loss_text(end.value)}, and the least that a model of this kind can have is {least}: "
            "another learning rate or more rounds would not help."
        )
    if before is None or end is None or too_small:
        return
    values = (
        f"{loss_text(before.value)} after round {before.round}, {loss_text(end.value)} after round {end.round}"
    )
    match trend.trend:
        case Trend.RISING:
            yield f"{figure} rose in training: {values}."
        case Trend.FALLING:
            yield f"{figure} was still falling at the end: {values}."
        case Trend.STILL:
            yield f"{figure} hardly moved in training: {values}."
        case Trend.FLAT if trend.optimum is not None:
            yield (
                f"{figure} was flat at the end: {values}; the least that a model of this kind can have is "
                f"{loss_text(trend.optimum)}."
            )
        case Trend.FLAT:
            yield f"{figure} was flat at the end: {values}."


def _opening(comparison: Comparison) -> str:
    match state_of(comparison):
        case "worse":
            return "Do not use this model as it is."
        case "uncertain" if comparison.faults:
            return (
                "The figures are estimates, so nothing is certain; if they are right, do not use this model as it "
                "is."
            )
        case "uncertain":
            return "The figures are estimates: they show no fault of this model, and prove nothing."
        case "unknown":
            return "Too few people were evaluated to say whether this model is worse than guessing."
        case "fine":
            return _no_fault(comparison)


def _no_fault(comparison: Comparison) -> str:
    others = _compared(comparison)
    if not others:
        return "The model was compared with no other, so nothing shows it worse than one."
    opening = (
        "No evaluation shows" if comparison.unserved is None else "For everybody together, no evaluation shows"
    )
    return f"{opening} this model worse than {others}."


def _compared(comparison: Comparison) -> str:
    reasons = {omission.why for omission in comparison.omissions}
    words = [] if comparison.served is None else ["the uniform guess"]
    if not reasons & {OmissionReason.NOT_EVALUATED, OmissionReason.OTHER_RECORDS}:
        words.insert(0, "before training")
    if comparison.has_classes and OmissionReason.NO_CLASS_COUNTS not in reasons:
        words += ["the base rate", "the most frequent class"]
    words += ["always predicting the mean"] if comparison.has_mean else []
    return _listed(words)


def _finding(fault: FoundFault, size: float) -> VerdictFinding:
    return VerdictFinding(
        subject=fault.subject,
        split=fault.split,
        value=fault.value,
        reference=fault.reference,
        limit=fault.limit,
        certain=fault.certain,
        sentence=_fault_sentence([fault], size),
    )


def _fault_sentences(comparison: Comparison, size: float) -> Iterator[str]:
    """Yield one sentence for each figure, with everything that it is worse than."""
    for _, faults in itertools.groupby(comparison.faults, lambda fault: (fault.subject, fault.certain)):
        yield _fault_sentence([*faults], size)


def _fault_sentence(faults: Sequence[FoundFault], size: float) -> str:
    """Return a sentence about the faults of one figure, which are all certain, or all estimated."""
    one = faults[0]
    sentence = f"{_figure(one, size)} {_listed([_reference(fault) for fault in faults], 'and')}."
    return sentence if one.certain else f"Estimated: {sentence[:1].lower()}{sentence[1:]}"


def _figure(fault: FoundFault, size: float) -> str:
    if fault.subject == "training":
        return f"After {fault.value:.0f} rounds no trained model was better, so"
    if fault.split is None:
        return f"{fault.value:.0f} losses of this model were not finite or too large,"
    records = f"{fault.records} {_RECORDS[fault.split]}"
    match fault.subject:
        case "r_squared":
            return f"The share of variance explained (R squared) over {records} is {fault.value:.2f}, below"
        case "accuracy":
            return f"The accuracy over {records} is {100 * fault.value:.1f} %, below"
        case "objective":
            return f"The plan's objective over {records} is {loss_text(fault.value)}, above"
        case subject:
            whom = f"All {records}" if subject == "mean" else f"The worst {percent(size)} of {records}"
            return f"{whom} have a mean loss of {loss_text(fault.value)}, above"


def _reference(fault: FoundFault) -> str:  # noqa: PLR0911 - one return for each reference
    match fault.reference:
        case "start" if fault.subject == "training":
            return f"{UNTRAINED} is returned"
        case "start":
            return f"the {loss_text(fault.limit)} before training"
        case "uniform_guess":
            return f"the {loss_text(fault.limit)} of the uniform guess"
        case "base_rate" | "best_constant":
            return f"the {loss_text(fault.limit)} of telling everybody the base rate"
        case "majority":
            return f"the {100 * fault.limit:.1f} % of always naming the most frequent class"
        case "target_mean":
            return "the 0 of always predicting their mean"
        case "right_model":
            return f"the {fault.limit:.2f} that a model which is right about its loss has at least"
        case "finite":
            return "so others were counted in their place"


def _omission(omission: Omission, size: float) -> str:
    records = _RECORDS[omission.split]
    match omission.why:
        case OmissionReason.NOT_EVALUATED:
            return "Round 0 was not evaluated, so the model is not compared with the start."
        case OmissionReason.OTHER_RECORDS:
            return (
                f"Round 0 was evaluated over other {records}, so the model is not compared with the start there."
            )
        case OmissionReason.TOO_FEW_PEOPLE:
            return (
                f"The worst {percent(size)} of the {records} are fewer people than evaluation.min_group, so they "
                "are not compared."
            )
        case OmissionReason.NO_CLASS_COUNTS:
            return (
                "There are too many classes for a count of each, so the base rate and the most frequent class are "
                "not known."
            )


def _listed(words: Sequence[str], joint: str = "or") -> str:
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} {joint} {words[-1]}"
