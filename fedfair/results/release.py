"""Whether a model may leave, in a result and in words: how well its losses give away who was trained on.

Part of the model in `document.py`; what the figures mean is `aggregation.audit_findings`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fedfair.aggregation.audit_findings import MISTAKES, AuditedGroup, AuditFindings
from fedfair.plan.derived import audited_splits, audits_release
from fedfair.plan.schema import Plan
from fedfair.results.frozen import FrozenPart, given
from fedfair.results.slices import SliceCellFields, cell_fields, slice_words
from fedfair.run.progress import RunResult


class FoundMembers(FrozenPart):
    """The share of training records that an attack finds, where few held-out records are called members."""

    estimate: float
    """as counted"""

    interval: tuple[float, float]
    """that holds the share, with 95 % for all intervals of the audit together"""


class AuditedGroupFields(FrozenPart):
    """How an attack does on the records of a group."""

    attack: Literal["loss", "calibrated"]
    """loss: the lower the loss, the likelier a member; calibrated: the loss less that of a reference which has not
    seen the record"""

    label: int | None = None
    """the class of the group; omitted for everybody and for a slice"""

    cells: tuple[SliceCellFields, ...] | None = None
    """of a slice; omitted for everybody and for a class"""

    train: int
    """training records"""

    held_out: int
    """records that no training has seen"""

    auc: float
    """the chance that a training record scores lower than a held-out one; 0.5 tells nothing"""

    tpr_at_01: FoundMembers
    """at one mistake in a hundred held-out records"""

    tpr_at_001: FoundMembers
    """at one in a thousand"""


class AuditFigures(FrozenPart):
    """How well losses of the output model tell training records from held-out ones."""

    held_out: tuple[Literal["validation", "test"], ...]
    """which records were held out"""

    groups: tuple[AuditedGroupFields, ...]
    """everybody first, then classes and the worst slices"""

    untold: int
    """groups with too few records of either kind"""

    epsilon_at_least: float | None = None
    """no training with a smaller epsilon for single records shows this, with 95 %; 0 says nothing; omitted where a
    person may have records at several sites"""


class ReleaseFigures(FrozenPart):
    """Whether the output model may leave."""

    audit: AuditFigures | None = None
    """how well it keeps who was trained on; omitted where the audit could not be had"""


def release_figures(run: RunResult, plan: Plan) -> ReleaseFigures | None:
    """Return what a result tells of a release; None where no audit is planned, or the run has not come to it."""
    if not (audits_release(plan) and run.finished):
        return None
    return ReleaseFigures(**given(audit=None if run.audit is None else _audit(run.audit, plan)))


def _audit(found: AuditFindings, plan: Plan) -> AuditFigures:
    values = {
        "held_out": audited_splits(plan),
        "groups": tuple(map(_group, found.groups)),
        "untold": found.untold,
        **given(epsilon_at_least=found.epsilon),
    }
    return AuditFigures.model_validate(values)


def _group(one: AuditedGroup) -> AuditedGroupFields:
    shares = zip(("tpr_at_01", "tpr_at_001"), one.found, strict=True)
    found = {
        name: FoundMembers(estimate=share.estimate, interval=(share.lower, share.upper)) for name, share in shares
    }
    cells = tuple(map(cell_fields, one.cells)) or None
    counts = {"train": one.train, "held_out": one.held_out, "auc": one.area}
    about = given(attack=one.attack, label=one.label, cells=cells)
    return AuditedGroupFields.model_validate(about | counts | found)


# ------------------------------------------------------------------ words


def group_words(one: AuditedGroupFields) -> str:
    """Return who is in a group, in words."""
    if one.cells is not None:
        return slice_words(one.cells)
    return "everybody" if one.label is None else f"class {one.label}"


def audit_sentences(fields: ReleaseFigures | None) -> Iterator[str]:
    """Yield what a terminal says about an audit; nothing where none was planned."""
    if fields is None:
        return
    if fields.audit is None:
        yield "The release audit could not be had."
        return
    worst = max(fields.audit.groups, key=lambda one: one.tpr_at_01.interval[0])
    low, high = worst.tpr_at_01.interval
    attack = "losses" if worst.attack == "loss" else "losses beside those of references"
    everybody, most = fields.audit.groups[0], f"{100 * low:.1f} to {100 * high:.1f} %"
    yield (
        f"Release audit: with {MISTAKES[0]:.0%} mistakes {attack} give away {most} of the training records (worst "
        f"group: {group_words(worst)}); AUC of everybody {everybody.auc:.3f}."
    )
    if fields.audit.epsilon_at_least:
        least = f"{fields.audit.epsilon_at_least:.2f}"
        yield f"No training with an epsilon below {least} for single records shows this."
