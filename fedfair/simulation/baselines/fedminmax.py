"""FedMinMax over groups that only the records tell, such as the values of a column that the plan does not declare.

All records are looked at before round 1, so that this runs in simulation only. Of groups that the plan
tells, a round is one sum: its rule, and the source of both, is `terms.group_weights.state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import PlanError
from fedfair.fairness.simplex import Vector, project_on_simplex
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import adversary_acts, moved, present, shares, training_losses
from fedfair.simulation.clients import AskedSteps, Clients
from fedfair.tables.dataset import Dataset

Groups = NDArray[np.int64]
"""For every training record of one collaborator the number of its group; array (n_k,)."""


def groups_of(records: Iterable[Dataset], column: str | None) -> list[Groups]:
    """Return the groups of all training records, numbered alike for all.

    Args:
        records: the training records of each collaborator.
        column: the kept column whose values are the groups; None takes the labels.

    Raises:
        PlanError: somebody's records have no such column.
    """
    held = [data.labels.astype(str) if column is None else _column(data, column) for data in records]
    numbers = np.unique(np.concatenate(held), return_inverse=True)[1]
    return np.split(numbers.astype(np.int64), np.cumsum([len(values) for values in held])[:-1])


def _column(data: Dataset, column: str) -> NDArray[np.str_]:
    if column not in data.columns:
        raise PlanError(
            f"training.options.group_column: the records have no column {column!r}",
            f"name one of {', '.join(data.columns)}" if data.columns else "these data keep none; leave it null",
        )
    return group_names(data.columns[column])


def group_names(values: NDArray[np.generic]) -> NDArray[np.str_]:
    """Return the names of groups: a number is one name however it is written, such as 1 and 1.0.

    Args:
        values: array (n,) of raw values as sites wrote them.
    """
    written, place = np.unique(values.astype(str), return_inverse=True)
    return np.array([_plain(text) for text in written.tolist()], np.str_)[place]


def _plain(text: str) -> str:
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


class MinimaxOverGroups:
    """The rounds of FedMinMax.

    Args:
        groups: of all training records, in the order of the cohort.
        learning_rate: eta_mu, of the adversary.
        interval: rounds from one of its steps to the next, at least 1; a step is as long as so many.

    Attributes:
        weights: mu, float64 array (groups,).
    """

    def __init__(self, groups: Sequence[Groups], learning_rate: float, interval: int = 1) -> None:
        self._interval = interval
        self._groups = tuple(groups)
        self._learning_rate = learning_rate
        counts = np.bincount(np.concatenate(self._groups))
        self._counts: Vector = counts.astype(np.float64)
        self._shares: Vector = counts / counts.sum()
        self.weights: Vector = self._shares

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make one step of both players from the same model."""
        members = present(cohort)
        ratio = self.weights / self._shares
        by_record = [ratio[self._groups[member]] for member in members]
        changes = cohort.changes(model, AskedSteps(number, members, record_weights=by_record))
        if adversary_acts(number, self._interval):
            rate = self._interval * self._learning_rate
            self.weights = project_on_simplex(self.weights + rate * self._risks(cohort, model, members))
        return moved(model, shares(cohort, members) @ changes)

    def _risks(self, cohort: Clients, model: GlobalModel, members: Sequence[int]) -> Vector:
        """Return the mean loss of each group over all records."""
        groups = np.concatenate([self._groups[member] for member in members])
        losses = np.concatenate(training_losses(cohort, model, members))
        return np.bincount(groups, losses, len(self._counts)) / self._counts
