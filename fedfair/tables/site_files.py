"""Everybody's records where each has a file of its own, read when they are asked for and not before.

A simulation on many machines gives each worker the names of its collaborators, and the worker reads their files:
no machine ever holds everybody's records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Splits
from fedfair.tables.source import files_of_sites, read_site_file


class SiteFiles(Mapping[ParticipantId, Splits]):
    """Records by name; each look at one reads its file again.

    Args:
        plan: a plan whose `csv.train_of` names the files.
        root: the folder that the plan's paths start from, on every machine that reads.
        names: of those who are in it; None for everybody.

    Raises:
        PlanError: the plan does not name one file for each collaborator.
    """

    def __init__(self, plan: Plan, root: Path, names: Collection[ParticipantId] | None = None) -> None:
        files = files_of_sites(plan) or {}
        self._plan, self._root = plan, root
        self._files = {name: files[name] for name in (files if names is None else names)}

    def __getitem__(self, name: ParticipantId) -> Splits:
        return read_site_file(self._plan, name, self._files[name], self._root)

    def __iter__(self) -> Iterator[ParticipantId]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def only(self, names: Collection[ParticipantId]) -> SiteFiles:
        """Return the records of some."""
        return SiteFiles(self._plan, self._root, names)
