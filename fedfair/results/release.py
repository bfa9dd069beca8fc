"""Whether a model may leave, in a result and in words: how well its losses give away who was trained on.

Part of the model in `document.py`; what the figures mean is `aggregation.audit_findings`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from fedfair.aggregation.audit_findings import MISTAKES, AuditedGroup, AuditFindings
from fedfair.plan.derived import audited_splits, audits_release
from fedfair.plan.schema import Plan
from fedfair.results.frozen import FrozenPart, given
from fedfair.results.slices import SliceCellFields, cell_fields, slice_words
from fedfair.run.progress import RunResult
from fedfair.transcript.statement import Release, ReleaseVerdict


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


class SiteRelease(FrozenPart):
    """A site's word on the release of the model, as it has signed it at the end of the run."""

    word: Literal["agreed", "withheld", "not asked", "no statement"]
    """no statement: it has signed no end of the run that is this one"""

    reasons: tuple[str, ...] | None = None
    """why it withholds; omitted with any other word"""


class ReleaseFigures(FrozenPart):
    """Whether the output model may leave."""

    state: Literal["released", "not released"] | None = None
    """released: every site has agreed; omitted where no site has a say, as in a simulation"""

    by: dict[str, SiteRelease] | None = None
    """the word of every site; omitted where the state is"""

    audit: AuditFigures | None = None
    """how well it keeps who was trained on; omitted where the audit could not be had"""


def release_figures(run: RunResult, plan: Plan) -> ReleaseFigures | None:
    """Return what a result tells of a release; None where no audit is planned, or the run has not come to it."""
    if not (audits_release(plan) and run.finished):
        return None
    return ReleaseFigures(**given(audit=None if run.audit is None else _audit(run.audit, plan)))


def with_words(
    figures: ReleaseFigures | None, sites: Sequence[str], said: Mapping[str, ReleaseVerdict]
) -> ReleaseFigures | None:
    """Return what a result tells of a release with the words of the sites; None where nobody is asked.

    Args:
        figures: of the run; None without an audit.
        sites: all of the plan's.
        said: the verdict of each that has signed the end of this run.
    """
    if figures is None and all(one.release is Release.NOT_ASKED for one in said.values()):
        return None
    by = {
        name: SiteRelease.model_validate(
            {"word": one.release.value, **given(reasons=tuple(each.value for each in one.reasons) or None)}
        )
        if (one := said.get(name)) is not None
        else SiteRelease(word="no statement")
        for name in sites
    }
    agreed = all(one.word == "agreed" for one in by.values())
    state = "released" if agreed else "not released"
    return (figures or ReleaseFigures()).model_copy(update={"state": state, "by": by})


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


def withheld_sentence(fields: ReleaseFigures | None) -> Iterator[str]:
    """Yield that a model is not released, and by whom; nothing where it is, or nobody was asked."""
    if fields is None or fields.state != "not released" or fields.by is None:
        return
    others = {name: one for name, one in fields.by.items() if one.word != "agreed"}
    names = [f"{name} ({', '.join(one.reasons or (one.word,))})" for name, one in others.items()]
    yield f"The model is not released by {', '.join(names)}: do not hand it out."


def audit_sentences(fields: ReleaseFigures | None) -> Iterator[str]:
    """Yield what a terminal says about an audit; nothing where none was planned."""
    if fields is None:
        return
    if fields.state == "released":
        yield "Every site has agreed to the release of the model."
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
