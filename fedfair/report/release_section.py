"""The section of a run's page about the release audit: how well the model keeps who was trained on.

Decides sentences and the table; figures and names are `results.release`'s.
"""

from __future__ import annotations

from markupsafe import Markup

from fedfair.report.blocks import bullets, paragraph, table
from fedfair.results.release import (
    AuditFigures,
    FoundMembers,
    ReleaseFigures,
    audit_sentences,
    group_words,
    withheld_sentence,
)

TITLE = "What the model gives away about who was trained on"

_LIMITS = (
    "A stronger attack may find more: the audit tries losses alone, and the best attack trains models of its own.",
    "Records that a site has twice are left out: their sides are one draw.",
)


def release_parts(fields: ReleaseFigures) -> Markup:
    """Return what a page says about a release."""
    said = " ".join((*withheld_sentence(fields), *audit_sentences(fields)))
    lead = paragraph(said, "lead")
    return lead if fields.audit is None else lead + _audit(fields.audit)


def _audit(audit: AuditFigures) -> Markup:
    words = (
        f"Training records are compared with {' and '.join(audit.held_out)} records, whose side was drawn for "
        "each by itself. An attack calls a record a member where its score is low. All intervals hold together "
        "with 95 %."
    )
    rows = [
        (
            group_words(one),
            "loss" if one.attack == "loss" else "loss beside a reference's",
            f"{one.train} / {one.held_out}",
            f"{one.auc:.3f}",
            _share(one.tpr_at_01),
            _share(one.tpr_at_001),
        )
        for one in audit.groups
    ]
    headings = ("group", "attack by", "trained on / held out", "AUC", "found at 1 %", "found at 0.1 %")
    caption = "Members that are found where so few others are called members: as counted, and the interval."
    few = f"{audit.untold} groups have too few records of either kind."
    return paragraph(words) + table(caption, headings, rows) + bullets([*_LIMITS, *[few] * (audit.untold > 0)])


def _share(found: FoundMembers) -> str:
    low, high = found.interval
    return f"{100 * found.estimate:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
