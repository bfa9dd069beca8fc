"""A site's own groups on its terminal, as JSON and as CSV; nothing of them is ever sent."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from fedfair.fairness.wilson import Proportion
from fedfair.report.per_hundred import OUT_OF
from fedfair.results.document import Json, JsonObject
from fedfair.results.group_figures import GroupTable, NamedGroup
from fedfair.results.loss_text import loss_text
from fedfair.run.calibration_text import RECORDS
from fedfair.simulation.site_groups import SiteGroups

SHARES = ("accuracy", "positives", "missed", "alarmed", "sensitivity", "specificity")
"""The shares of a group in JSON and CSV, as `NamedGroup` has them."""

_NOTHING = "-"


def group_view(found: SiteGroups, table: GroupTable) -> Table:
    """Return one row for each group of a column."""
    title = f"{table.column}: {found.records} {RECORDS[found.split]} records of {found.participant}"
    view = Table(title=escape(title), title_justify="left")
    shown = [*_columns(found, table)]
    for place, (heading, _) in enumerate(shown):
        view.add_column(heading, justify="right" if place else "left", overflow="fold")
    for cells in zip(*(cells for _, cells in shown), strict=True):
        view.add_row(*map(escape, cells))
    if table.hidden:
        groups = "1 group" if table.hidden == 1 else f"{table.hidden} groups"
        view.caption = (
            f"hidden: {groups} of fewer than {found.fewest} records, {table.hidden_records} together; "
            "--min-group shows them"
        )
        view.caption_justify = "left"
    return view


def _columns(found: SiteGroups, table: GroupTable) -> Iterator[tuple[str, list[str]]]:
    """Yield each heading that some group has figures for, with the cells under it."""
    groups = table.groups
    yield "group", [group.name for group in groups]
    yield "records", [str(group.records) for group in groups]
    if groups[0].positives is not None:
        yield "of class 1", [_percent(group.positives) for group in groups]
    yield f"mean loss ({found.loss_unit})", [loss_text(group.mean) for group in groups]
    if groups[0].accuracy is not None:
        yield "accuracy", [_percent(group.accuracy) for group in groups]
    if groups[0].missed is not None:
        yield f"missed of {OUT_OF}", [_of_hundred(group.missed) for group in groups]
        yield f"false alarms of {OUT_OF}", [_of_hundred(group.alarmed) for group in groups]
    if groups[0].auc is not None:
        yield "AUC", [_NOTHING if group.auc is None else f"{group.auc:.3f}" for group in groups]


def _percent(share: Proportion | None) -> str:
    if share is None:
        return _NOTHING
    low, high = share.interval
    return f"{share.share:.0%} ({OUT_OF * low:.0f}-{OUT_OF * high:.0f}%)"


def _of_hundred(share: Proportion | None) -> str:
    if share is None:
        return _NOTHING
    low, high = share.interval
    return f"{OUT_OF * share.share:.0f} ({OUT_OF * low:.0f}-{OUT_OF * high:.0f})"


def group_notes(found: SiteGroups) -> Iterator[str]:
    """Yield what must be known beside the tables."""
    if found.split == "train":
        yield "The model was trained on these records, which makes it look better than it is."
    classes = any(table.groups[0].missed is not None for table in found.tables)
    if classes and found.threshold is None:
        yield "A record is taken for class 1 where the model's score is above one half."
    if found.threshold is not None:
        what = "calibrated probability" if found.calibrated else "score"
        yield f"A record is taken for class 1 where its {what} is {found.threshold:g} or more."
    if any(table.groups[0].accuracy is not None for table in found.tables):
        yield "In brackets: where the truth is in 95 of 100 cases (Wilson). Of many groups, some differ by chance."
    yield "Nothing was sent."


def group_document(found: SiteGroups) -> JsonObject:
    """Return the same figures, unrounded."""
    return {
        "collaborator": str(found.participant),
        "split": found.split,
        "records": found.records,
        "loss_unit": found.loss_unit,
        "threshold": found.threshold,
        "calibrated": found.calibrated,
        "min_group": found.fewest,
        "columns": [
            {
                "column": table.column,
                "groups": [_group(group) for group in table.groups],
                "hidden_groups": table.hidden,
                "hidden_records": table.hidden_records,
            }
            for table in found.tables
        ],
    }


def _group(group: NamedGroup) -> JsonObject:
    told: JsonObject = {"group": group.name, "records": group.records, "mean": group.mean}
    for name in SHARES:
        share: Proportion | None = getattr(group, name)
        told[name] = None if share is None else _share(share)
    return told | {"auc": group.auc}


def _share(share: Proportion) -> JsonObject:
    low, high = share.interval
    ends: list[Json] = [low, high]
    return {"count": share.count, "of": share.of, "share": share.share, "interval": ends}


def group_text(found: SiteGroups) -> str:
    """Return the same figures as CSV, a line for each group of each column."""
    heading = ["column", "group", "records", "mean"]
    heading += [f"{name}{end}" for name in SHARES for end in ("", "_low", "_high")]
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow([*heading, "auc"])
    for table in found.tables:
        for group in table.groups:
            shares: list[Proportion | None] = [getattr(group, name) for name in SHARES]
            ends = [
                value
                for share in shares
                for value in ((None,) * 3 if share is None else (share.share, *share.interval))
            ]
            lines.writerow([table.column, group.name, group.records, group.mean, *ends, group.auc])
    return written.getvalue()
