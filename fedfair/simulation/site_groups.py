"""How a saved model serves named groups of one site's own held-out records; nothing is sent.

Decides which columns are looked at, whose records they are, and by which threshold a record is taken for class 1.
The figures are `results.group_figures`'s, the groups `tables.column_groups`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedfair.aggregation.calibration import Calibration, Uncalibrated, calibrated
from fedfair.errors import DataError
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.likeness import meant
from fedfair.plan.derived import predicts_classes
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.results.group_figures import GroupTable, JudgedRecords, group_table
from fedfair.simulation.evaluate import evaluate_sites
from fedfair.tables.column_groups import AskedColumn, ColumnGroups, column_groups
from fedfair.tables.dataset import Columns, Splits
from fedfair.tables.number_texts import NumberForm, form_of
from fedfair.tables.site_form import SiteTable


@dataclass(frozen=True, slots=True)
class SiteGroups:
    """The groups of one site's records.

    Attributes:
        participant: the site.
        split: whose records: test, or validation, or train where none are held out.
        records: how many there are.
        tables: one for each column.
        fewest: groups of fewer records are hidden.
        threshold: from which a record is taken for class 1; None where it is taken for the likelier class.
        calibrated: whether the threshold is one of calibrated scores.
        loss_unit: of every loss here.
    """

    participant: ParticipantId
    split: str
    records: int
    tables: tuple[GroupTable, ...]
    fewest: int
    threshold: float | None
    calibrated: bool
    loss_unit: str


@dataclass(frozen=True, slots=True)
class AskedGroups:
    """What a site asks about its groups.

    Attributes:
        columns: by which records are divided.
        threshold: of the probability from which a record counts as class 1; None for the likelier class.
        fewest: groups of fewer records are hidden; None for the plan's evaluation.min_group.
    """

    columns: tuple[AskedColumn, ...]
    threshold: float | None = None
    fewest: int | None = None


def usual_columns(plan: Plan) -> tuple[AskedColumn, ...]:
    """Return the columns that are looked at where none are named: the categories that the plan declares.

    Raises:
        DataError: it declares none.
    """
    data = plan.task.data
    found = tuple(data.csv.categorical) if isinstance(data, CsvSource) else ()
    if not found:
        raise DataError("the plan declares no categories", "name columns of your own: --by sex --by age:4")
    return tuple(map(AskedColumn, found))


def check_columns(plan: Plan, asked: Sequence[AskedColumn]) -> None:
    """Refuse a column that cannot be kept beside the features.

    Raises:
        DataError: under `numeric: all` the column is a feature, and would be none if it were kept.
    """
    data = plan.task.data
    if not isinstance(data, CsvSource) or not isinstance(data.csv.numeric, str):
        return
    for column in asked:
        if column.name not in data.csv.named_columns:
            raise DataError(
                f"--by {column}: under numeric: all the column {column.name!r} is a feature, and only others "
                "can be kept",
                "name a category of the plan, or a column under its keep",
            )


def groups_at_site(
    plan: Plan,
    participant: ParticipantId,
    splits: Splits,
    code: Path,
    model_file: Path,
    asked: AskedGroups,
    table: SiteTable | None = None,
) -> SiteGroups:
    """Return how a saved model serves the groups of a site's records.

    Args:
        plan: the plan that trained the model.
        participant: the site.
        splits: its records, with the columns that are asked for.
        code: where a "module:function" of the plan is looked for.
        model_file: the model.
        asked: which groups.
        table: how the site's own table is written; None where its records are none.

    Raises:
        FedfairError: the model cannot be loaded, a column is not there or cannot be divided, or there are no
            scores for the threshold.
    """
    split = next((name for name in ("test", "validation") if len(splits.parts.get(name) or ())), "train")
    held = splits.parts[split]
    divided = [_divided(column, held.columns, table) for column in asked.columns]
    outcome = evaluate_sites(plan, code, {participant: splits}, model_file, exact=False)
    losses, found = outcome.losses[participant][split], outcome.saved.calibration
    if asked.threshold is not None:
        losses = _decided(plan, losses, asked.threshold, found)
    fewest = plan.evaluation.min_group if asked.fewest is None else asked.fewest
    judged = JudgedRecords(losses, held.schema.classes)
    return SiteGroups(
        participant,
        split,
        len(held),
        tuple(group_table(str(one.asked), one.names, one.place, judged, fewest) for one in divided),
        fewest,
        asked.threshold,
        isinstance(found, Calibration),
        plan.task.loss.unit,
    )


def _divided(asked: AskedColumn, columns: Columns, table: SiteTable | None) -> ColumnGroups:
    if asked.name not in columns:
        known = [name for name, values in columns.items() if values.dtype.kind != "b"]
        close = meant(asked.name, known)
        raise DataError(
            f"--by {asked}: the records have no column {asked.name!r}"
            + ("" if close is None else f" (did you mean {close!r}?)"),
            f"name one of {', '.join(known)}" if known else "this source keeps no columns beside its features",
        )
    if table is None:
        return column_groups(asked, columns[asked.name], NumberForm(), ())
    name = table.names.get(asked.name, asked.name)
    marks = (*table.file.missing_values, *map(str, table.file.missing_values_of.get(name, ())))
    return column_groups(asked, columns[asked.name], form_of(table.file, name), marks)


def _decided(plan: Plan, losses: Losses, threshold: float, found: Calibration | Uncalibrated) -> Losses:
    """Return the losses of records that are taken for class 1 from a threshold on."""
    if not predicts_classes(plan):
        raise DataError(f"--threshold: the plan's loss is the {plan.task.loss.title}, without classes", "omit it")
    if losses.scores.shape[1] != 1:
        raise DataError(
            "--threshold: is one of two classes"
            if losses.scores.size
            else "--threshold: the plan sums no scores of two classes (evaluation.scores)",
            "omit it: then a record is taken for its likelier class",
        )
    scores = losses.scores[:, 0]
    chances = calibrated(scores, found.fits[0]) if isinstance(found, Calibration) else scores
    return replace(losses, predictions=(chances >= threshold).astype(np.int64))
