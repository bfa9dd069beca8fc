"""Records that persons withdraw: from identifiers to tombstones, with a word about those that nobody here has.

Decides what an identifier is looked for in (the records that the plan reads, and those who have withdrawn before)
and that one which is nowhere is refused, because a slip would leave the person in; nothing of a refused request is
recorded. Identifiers are shown on this site's own terminal and are kept nowhere.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from collaborator.site_data import OwnSite, own_site
from fedfair.errors import DataError, PlanError
from fedfair.tables.source import read_unfinished
from fedfair.withdrawal.owners import COLUMN_REMEDY, name_of
from fedfair.withdrawal.tombstone_file import TombstoneFile, owner_column, tombstone_file
from fedfair.withdrawal.tombstones import Tombstone

SHOWN = 20


@dataclass(frozen=True, slots=True)
class RecordedWithdrawal:
    """The outcome of one request.

    Attributes:
        recorded: how many persons have withdrawn by it.
        known: how many of its persons had withdrawn before.
        unknown: identifiers that no record here has; recorded all the same.
        total: how many persons have withdrawn at this site.
    """

    recorded: int
    known: int
    unknown: tuple[str, ...]
    total: int


def record_withdrawal(
    config_file: Path,
    plan_file: Path,
    identifiers: Sequence[str],
    reference: str,
    now: datetime,
    *,
    even_if_unknown: bool = False,
) -> RecordedWithdrawal:
    """Record that persons withdraw; it is on the disk when this returns.

    Args:
        config_file: the site's `collaborator.yaml`.
        plan_file: a plan by which its records are read.
        identifiers: of the persons, as their texts stand in the column of the site's own data.
        reference: what the site calls the request; empty for none.
        now: the time, in UTC.
        even_if_unknown: whether an identifier that no record has is recorded.

    Raises:
        DataError: an identifier is empty or unknown, or the records cannot be read.
        FedfairError: a file is wrong or cannot be written, or nothing says whose a record is.
    """
    site = own_site(None, config_file, plan_file)
    file = withdrawal_file(site)
    key = file.made_key()
    persons = {key.full_hash(text): text for text in identifiers}
    if not persons:
        raise DataError("no identifier is given", "name persons by --id or --ids")
    before = file.load().persons
    unknown = _unknown(site, {person: text for person, text in persons.items() if person not in before})
    if unknown and not even_if_unknown:
        told = ", ".join(map(repr, unknown[:SHOWN])) + (
            f" and {len(unknown) - SHOWN} more" if unknown[SHOWN:] else ""
        )
        raise DataError(
            f"{len(unknown)} of {len(persons)} identifiers are in no record that this plan reads: {told}; nothing "
            "was recorded",
            "correct them; or record them all the same by --even-if-unknown, for records that may come back",
        )
    at = now.isoformat(timespec="seconds")
    after = file.record([Tombstone(person, at, reference) for person in persons])
    fresh = len(after.entries) - len(before)
    return RecordedWithdrawal(fresh, len(persons) - fresh, tuple(unknown), len(after.entries))


def withdrawal_file(site: OwnSite) -> TombstoneFile:
    """Return the record of withdrawals of a site that can tell whose its records are.

    Raises:
        PlanError: nothing says whose a record is.
    """
    file = tombstone_file(site.config)
    if file is None or owner_column(site.plan, site.config) is None:
        raise PlanError("data.record_id: is missing, so nothing here says whose a record is", COLUMN_REMEDY)
    return file


def identifiers_in(path: Path, column: str | None) -> tuple[str, ...]:
    """Return the identifiers in a CSV file: those of its one column, or of the column of this name.

    Args:
        path: a text file in UTF-8 whose first line names its columns.
        column: by which the site tells whose a record is.

    Raises:
        DataError: the file cannot be read, or has several columns and none of this name.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file, strict=True) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a CSV file: {error}", "write one identifier a line") from error
    names = [name.strip() for name in header]
    if column not in names:
        raise DataError(
            f"{path} has no column '{column}'; its first line is {', '.join(map(repr, names)) or 'empty'}",
            f"write '{column}' on line 1, and one identifier a line below it",
        )
    place = names.index(column)
    short = next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if short is not None:
        raise DataError(f"{path}: row {short} has another number of fields than line 1", "correct the file")
    return tuple(row[place] for row in rows)


def _unknown(site: OwnSite, persons: dict[bytes, str]) -> list[str]:
    """Return the identifiers of those of whom no record is read."""
    if not persons:
        return []
    read = read_unfinished(site.plan, site.config, site.participant, site.workspace, code=site.code)
    held = [*read.splits.owners.values()]
    names = frozenset(np.concatenate(held).tolist()) if held else frozenset()
    return [text for person, text in persons.items() if name_of(person) not in names]
