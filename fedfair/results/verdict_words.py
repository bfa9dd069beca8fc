"""Says a verdict in plain sentences: one for all, one for each figure that is worse, and what was not compared.

Decides the words, the rounding, and what to try; whether there is a fault is `verdict.py`'s business.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import learns_threshold
from fedfair.plan.description import percent
from fedfair.plan.learning_rates import adapts_steps, server_optimizer_of, server_rate
from fedfair.plan.schema import Plan
from fedfair.results.loss_text import loss_text
from fedfair.results.served_groups import served_sentence
from fedfair.results.verdict import (
    Comparison,
    FoundFault,
    Omission,
    OmissionReason,
    RunVerdict,
    VerdictFinding,
    state_of,
)

UNEVALUATED = RunVerdict(
    state="unknown",
    findings=(),
    better_than_guess_from=None,
    sentences=("Nothing was evaluated, so whether this model is worse than guessing is not known.",),
)
"""The verdict on a model that no sum was made about."""

_RECORDS = {"train": "training records", "test": "test records"}
_TIMES_LARGER, _TIMES_SLOWER = 3.0, 10.0
"""How many times larger a group and how many times smaller a rate are worth a try, where no figure names one."""

"""Losses from here on are shown with three digits in all."""


FamilyLimit: TypeAlias = Callable[[], float | None]
"""Tells the group size below which no model of this kind beats guessing on the same records, where it is known."""


def worded(comparison: Comparison, plan: Plan, family: FamilyLimit | None = None) -> RunVerdict:
    """Return the verdict that a comparison comes to.

    Args:
        comparison: of the model that the run returned.
        plan: the plan of the run, for its values and what to try instead.
        family: asked just where the worst group is served worse than by guessing; None where nobody can tell.
    """
    size = plan.objective.worst_group_size
    findings = tuple(_finding(fault, size) for fault in comparison.faults)
    sentences = [_opening(comparison, plan), *_fault_sentences(comparison, size)]
    if any((fault.subject, fault.reference) == ("worst_group", "uniform_guess") for fault in comparison.faults):
        lowest = None if family is None else family()
        if comparison.served is not None:
            sentences.append(served_sentence(comparison.served, group_size=size, family_lowest=lowest))
    sentences += dict.fromkeys(_omission(omission, size) for omission in comparison.omissions)
    return RunVerdict(
        state=state_of(comparison),
        findings=findings,
        better_than_guess_from=comparison.better_than_guess_from,
        sentences=tuple(sentences),
    )


def _opening(comparison: Comparison, plan: Plan) -> str:
    match state_of(comparison):
        case "worse":
            return f"Do not use this model as it is; try {_remedies(comparison, plan)}."
        case "uncertain" if comparison.faults:
            return (
                "The figures are estimates, so nothing is certain; if they are right, do not use this model as it "
                f"is; try {_remedies(comparison, plan)}."
            )
        case "uncertain":
            return "The figures are estimates: they show no fault of this model, and prove nothing."
        case "unknown":
            return "Too few people were evaluated to say whether this model is worse than guessing."
        case "fine" if not _compared(comparison):
            return "The model was compared with no other, so nothing shows it worse than one."
        case "fine":
            return f"No evaluation shows this model worse than {_compared(comparison)}."


def _compared(comparison: Comparison) -> str:
    reasons = {omission.why for omission in comparison.omissions}
    words = [] if comparison.served is None else ["the uniform guess"]
    if not reasons & {OmissionReason.NOT_EVALUATED, OmissionReason.OTHER_RECORDS}:
        words.insert(0, "before training")
    if comparison.has_classes and OmissionReason.NO_CLASS_COUNTS not in reasons:
        words += ["the best constant prediction", "the most frequent class"]
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
        return f"Training made the model worse, so these figures are of round {fault.value:.0f} and"
    if fault.split is None:
        return f"{fault.value:.0f} losses of this model were not finite or too large,"
    records = f"{fault.records} {_RECORDS[fault.split]}"
    match fault.subject:
        case "accuracy":
            return f"The accuracy over {records} is {100 * fault.value:.1f} %, below"
        case "objective":
            return f"The plan's objective over {records} is {loss_text(fault.value)}, above"
        case _:
            return f"The worst {percent(size)} of {records} have a mean loss of {loss_text(fault.value)}, above"


def _reference(fault: FoundFault) -> str:
    match fault.reference:
        case "start" if fault.subject == "training":
            return "the model before training is returned"
        case "start":
            return f"the {loss_text(fault.limit)} before training"
        case "uniform_guess":
            return f"the {loss_text(fault.limit)} of the uniform guess"
        case "best_constant":
            return f"the {loss_text(fault.limit)} of the best constant prediction"
        case "majority":
            return f"the {100 * fault.limit:.1f} % of always naming the most frequent class"
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
                "There are too many classes for a count of each, so the best constant prediction and the most "
                "frequent class are not known."
            )


def _remedies(comparison: Comparison, plan: Plan) -> str:
    """Return what to try, each key with the value to try and the one that it has now."""
    return _listed([f"{key}: {wanted} (now {now})" for key, wanted, now in _changes(comparison, plan)])


def _changes(comparison: Comparison, plan: Plan) -> Iterator[tuple[str, str, str]]:
    subjects = {fault.subject for fault in comparison.faults}
    algorithm = plan.training.algorithm
    larger = _larger_size(comparison, plan)
    if larger is not None and not subjects & {"training", "objective", "losses"}:
        # The objective fell as it should: it is the aim that asks for too much.
        yield larger
        larger = None
    if not ALGORITHMS[algorithm].threshold and subjects & {"objective", "worst_group"}:
        yield "training.algorithm", "fedsrcvar", algorithm
    yield _slower(plan)
    if plan.training.schedule == "constant":
        yield "training.schedule", "linear", "constant"
    smoothing = plan.objective.smoothing.name
    if learns_threshold(plan) and smoothing != "zang":
        yield "objective.smoothing.name", "zang", smoothing
    if larger is not None:
        yield larger


def _slower(plan: Plan) -> tuple[str, str, str]:
    """Return a lower rate: the server's where its steps adapt, because the sites' then decides nothing."""
    if not adapts_steps(plan):
        rate = plan.training.learning_rate
        return "training.learning_rate", f"{rate / _TIMES_SLOWER:.4g}", f"{rate:.4g}"
    name, rate = server_optimizer_of(plan).name, server_rate(plan)
    wanted = f"{{name: {name}, learning_rate: {rate / _TIMES_SLOWER:.4g}}}"
    return "training.server_optimizer", wanted, f"{name} at {rate:.4g}"


def _larger_size(comparison: Comparison, plan: Plan) -> tuple[str, str, str] | None:
    now, served = plan.objective.worst_group_size, comparison.better_than_guess_from
    wanted = served if served is not None and served > now else _TIMES_LARGER * now
    # A group of everybody is no worst group: that is FedAvg, and no advice.
    return ("objective.worst_group_size", f"{wanted:.4g}", f"{now:.4g}") if wanted < 1.0 else None


def _listed(words: Sequence[str], joint: str = "or") -> str:
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} {joint} {words[-1]}"
