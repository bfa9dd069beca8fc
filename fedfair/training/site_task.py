"""What takes part in sums asks of what computes on a site's records, in this process or in one of its own.

`client.TrainingClient` is it where both are one process. Keys, ledger and network are on the other side of this
interface: nothing here takes or returns them, nor a record.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import RoundNumber
from fedfair.run.reference_file import KeptReferences
from fedfair.statistics.table import Purpose
from fedfair.terms.at_sites import NOTHING, AddedChange, Remembered
from fedfair.terms.local_change import LocalChange


class SiteTask(Protocol):
    """The computations of one site; `TrainingClient` says what each returns and raises."""

    @property
    def layout(self) -> Layout:
        """Return the layout of the model."""

    @property
    def training_weight(self) -> int:
        """Return what this site's change of the model weighs in a round."""

    @property
    def held_records(self) -> int:
        """Return how many records this site has, over all splits."""

    @property
    def scaling(self) -> FeatureScaling | None:
        """Return the scaling of the features that every contribution is made from; None without one."""

    @property
    def kept(self) -> NDArray[np.floating] | None:
        """Return what the last local steps left in the part of the model that stays here; None without one."""

    @property
    def last_fault(self) -> str:
        """Return what was wrong with the last contribution, for the site's operator; empty where nothing was."""

    def contribution(
        self, request: SumRequest, model: GlobalModel, remembered: Remembered = NOTHING
    ) -> Contribution:
        """Return what this site adds to the requested sum over the broadcast model."""

    def draws(self, purpose: Purpose, round_number: RoundNumber, attempt: int) -> bytes:
        """Return 32 bytes that stand for what is drawn for a contribution."""

    def added(self, addend: Contribution) -> AddedChange:
        """Return what a memory reads of a contribution to a round that is about to be added in the clear."""

    def summable_change(
        self, model: GlobalModel, number: RoundNumber, attempt: int, remembered: Remembered = NOTHING
    ) -> LocalChange | None:
        """Return this site's change of a round for a masked sum; None without training records."""

    def noised_numbers(self, model: GlobalModel, number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        """Return this site's part in a sum that protects it."""

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features as all sites do."""

    def apply_references(self, references: References) -> None:
        """Judge by these references."""

    def losses_of(self, model: GlobalModel) -> SiteLosses:
        """Return the losses of the splits that have records."""

    def own_values(self, begun: NDArray[np.floating] | None) -> NDArray[np.floating] | None:
        """Return the part of the model that stays here, array (k,); None where all of it travels.

        Args:
            begun: array (k,), what the site has kept; None for as before round 1.

        Raises:
            StateError: it is of another model.
        """

    def noted(self, kept: KeptReferences) -> KeptReferences:
        """Return references with a note of the training records that this site has."""
