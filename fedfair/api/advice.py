"""Advice from Python: which measure, group size, tradeoff and rate make sense on these records, and their plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.api.federation import read_federation
from fedfair.errors import DataError, PlanError
from fedfair.plan.fields import Section
from fedfair.plan.schema import Plan
from fedfair.report.advice_page import GROUP_SIZES, advice_pictures
from fedfair.report.blocks import notebook, paragraph
from fedfair.studies.advice.document import AdviceDocument
from fedfair.studies.advice.search import AdviceGrid, advise_sites
from fedfair.studies.advice.settings import plan_with, recommended_setting
from fedfair.tables.in_memory import SiteArrays

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ObjectiveAdvice:
    """The advice on the objective of a plan.

    Attributes:
        plan: the plan that was looked at.
        document: all figures, as in the file `advice.json`.
    """

    plan: Plan
    document: AdviceDocument

    def __repr__(self) -> str:
        """Return the recommendation in words."""
        return self.document.sentences[0]

    def _repr_html_(self) -> str:
        """Return the advice and its picture, for notebooks."""
        pictures = advice_pictures(self.document)
        shown = [pictures[GROUP_SIZES]] if GROUP_SIZES in pictures else []
        return notebook([*map(paragraph, self.document.sentences), *shown])

    def applied(self) -> Plan:
        """Return the plan with what is recommended: measure, group size, tradeoff and rate, or plain averaging.

        Raises:
            DataError: nothing beats guessing on these records, so nothing is recommended.
        """
        found = self.document.recommendation
        if found is None:
            raise DataError("there is no recommendation: " + self.document.sentences[0], "look at the data first")
        return plan_with(self.plan, recommended_setting(found))

    def to_frame(self) -> pd.DataFrame:
        """Return the held-out figures as a table, one row for each model and group size.

        Returns:
            The columns `trained_for` (1 for plain training), `tradeoff`, `mean`, `accuracy`, `group_size`, `worst`
            and `error`, the standard error of `worst`; losses in nats.
        """
        import pandas as pd  # only who wants a table waits for it

        rows = []
        for model in (self.document.plain, *self.document.models):
            held, setting = model.held_out, (model.worst_group_size, model.tradeoff)
            rows += [
                (*setting, held.mean, held.accuracy, each.size, each.worst, each.error) for each in held.groups
            ]
        names = ["trained_for", "tradeoff", "mean", "accuracy", "group_size", "worst", "error"]
        return pd.DataFrame(rows, columns=names)


def advise(
    source: Plan | str | os.PathLike[str] | Mapping[str, SiteArrays],
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    workspace: str | os.PathLike[str] | None = None,
    sizes: Sequence[float] | None = None,
    tradeoffs: Sequence[float] | None = None,
    rounds: int | None = None,
    quick: bool = False,
    **sections: Mapping[str, object] | Section,
) -> ObjectiveAdvice:
    """Recommend measure, group size, tradeoff and rate, as `fedfair plan advise` does; test records stay unseen.

    Args:
        source: a plan, the path of one, or the records of each site by its name, as for `fedfair.simulate`.
        plan: the plan for such records, or its path.
        workspace: the folder from which a plan's paths start; None for that of the plan, or the present one.
        sizes: group sizes to look at, above 0 and below 1; None for a few.
        tradeoffs: to look at, from 0 to below 1; None for a few.
        rounds: of each training; None for the plan's. The curves of a linear model are solved without any.
        quick: look at a sample for some seconds, without curves.
        sections: of a plan, for arrays without one, each a mapping with the keys of `plan.yaml`.

    Raises:
        PlanError: the plan or a section breaks a rule, or a size or tradeoff is out of its range.
        DataError: records are missing, or are no numbers of one shape.
    """
    grid = AdviceGrid(
        _shares("sizes", sizes, zero=False), _shares("tradeoffs", tradeoffs, zero=True), rounds, quick=quick
    )
    made, root = read_federation(source, plan, workspace, sections)
    return ObjectiveAdvice(made.plan, advise_sites(made.plan, made.sites, root, grid))


def _shares(name: str, stated: Sequence[float] | None, *, zero: bool) -> tuple[float, ...] | None:
    """Return shares sorted, each once; None where none are stated."""
    if stated is None:
        return None
    for share in stated:
        if not (0.0 < share < 1.0 or (zero and share == 0.0)):
            raise PlanError(f"{name}: {share!r} is no number {'from 0 to' if zero else 'above 0 and'} below 1")
    if not stated:
        raise PlanError(f"{name} is empty", "name at least one, or omit it")
    return tuple(sorted(set(stated)))
