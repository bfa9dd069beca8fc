"""One collaborator's part in every sum: what it adds, computed from its own records and the broadcast model.

A contribution is a function of (plan, records, model, request), so that a simulation and a deployed site compute
the same one. Records and losses are `local_records.py`'s, the rounds of training `local_rounds.py`'s, and what is
added to each other sum its statistic's (`site_statistics.py`). `assembly.py` says what a plan's words mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import is_noised
from fedfair.plan.schema import Plan
from fedfair.privacy.batch_parts import ALONE, BatchParts
from fedfair.privacy.sample_level import PrivateSteps
from fedfair.run.reference_file import KeptReferences
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.terms.at_sites import NOTHING, AddedChange, Remembered, SiteTerms
from fedfair.terms.local_change import LocalChange
from fedfair.training.contribution_draws import contribution_draws
from fedfair.training.dp_sgd import RecordProtection
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_descent import LocalDescent
from fedfair.training.local_records import LocalRecords
from fedfair.training.local_rounds import LocalRounds
from fedfair.training.local_sgd import LocalSteps
from fedfair.training.reference_records import of_records
from fedfair.training.site_statistics import Contribute, SiteParts, site_statistic


class TrainingClient:
    """The computations of one collaborator; the aggregator never sees one.

    Args:
        plan: the plan that all sites approved.
        participant: whose records these are; part of what seeds its draws.
        splits: its records, unscaled.
        model: the plan's model on the device to work on; its content is overwritten by every broadcast, so several
            tasks of one thread may share it.
        steps: how a step is made on that model; by default as the plan says.
        protection: what its records are protected with; needed where the plan asks for differential privacy.
        masked: whether what it adds is masked. Then it never leaves a sum because of a value: what cannot be
            summed is replaced and counted. It never does so where noise protects its records either. Otherwise it
            refuses to send such values.
        parts: the processes of this site that compute together; each has a client of its own.

    Attributes:
        participant: whose records these are.
        layout: of the model.
        records: as the model takes them, with their losses.
        descent: its local steps.
        rounds: its rounds of training.
        training_weight: what this site's change of the model weighs in a round.
        training_records: how many training records this site has.
    """

    def __init__(
        self,
        plan: Plan,
        participant: ParticipantId,
        splits: Splits,
        model: FlatModel,
        steps: LocalSteps | PrivateSteps | None = None,
        protection: RecordProtection | None = None,
        *,
        masked: bool = False,
        parts: BatchParts = ALONE,
    ) -> None:
        if (protection is None) == is_noised(plan):
            raise LocalProtocolError(
                "entropy and a ledger belong to a plan with differential privacy, and to no other"
            )
        self._plan, self._protection = plan, protection
        self.participant, self.layout = participant, model.layout
        replaces = masked or protection is not None
        self.records = LocalRecords(plan, participant, splits, model, parts, replaces=replaces)
        terms = SiteTerms(plan, splits.train)
        self.descent = LocalDescent(self.records, terms, steps, protection)
        self.rounds = LocalRounds(self.records, self.descent, terms, protection)
        self._parts = SiteParts(self.records, self.rounds, protection)
        self._statistics: dict[Purpose, Contribute] = {}
        self.training_weight, self.training_records = self.descent.weight, len(splits.train)

    def contribution(
        self, request: SumRequest, model: GlobalModel, remembered: Remembered = NOTHING
    ) -> Contribution:
        """Return what this site adds to the requested sum over the broadcast model.

        Args:
            request: the sum.
            model: the model.
            remembered: what this site has kept of earlier rounds and its steps need.

        Raises:
            LocalProtocolError: the plan makes no such sum, or it cannot carry the noise that the plan asks for.
            TrainingError: the model fails on these records, where nothing hides that.
        """
        self.records.begin_kept(remembered.kept)
        if request.purpose not in self._statistics:
            self._statistics[request.purpose] = site_statistic(request.purpose).at_site(self._parts)
        return self._statistics[request.purpose](request, model, remembered)

    def draws(self, purpose: Purpose, round_number: RoundNumber, attempt: int) -> bytes:
        """Return 32 bytes that stand for what is drawn for a contribution, as `contribution_draws`.

        Args:
            purpose: of the sum.
            round_number: the round, or which sum of the references it is.
            attempt: which attempt at the sum, from 1, by this site's own count.
        """
        entropy = None if self._protection is None else self._protection.entropy
        about = (self._plan, self.training_records, entropy)
        return contribution_draws(*about, purpose, round_number, attempt)

    def added(self, addend: Contribution) -> AddedChange:
        """Return what a memory reads of a contribution to a round that is about to be added in the clear."""
        return AddedChange.in_the_clear(self.descent.header, addend, self.kept)

    @property
    def held_records(self) -> int:
        """Return how many records this site has, over all splits."""
        return self.records.splits.records

    @property
    def kept(self) -> NDArray[np.floating] | None:
        """Return what the last local steps left in the part of the model that stays here; None without one."""
        return self.descent.kept

    def summable_change(
        self, model: GlobalModel, number: RoundNumber, attempt: int, remembered: Remembered = NOTHING
    ) -> LocalChange | None:
        """Return this site's change of a round for a masked sum, as `LocalRounds.summable_change`."""
        return self.rounds.summable_change(model, number, attempt, remembered)

    def noised_numbers(self, model: GlobalModel, number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        """Return this site's part in a sum that protects it, as `LocalRounds.noised_numbers`."""
        return self.rounds.noised_numbers(model, number, attempt)

    def own_values(self, begun: NDArray[np.floating] | None) -> NDArray[np.floating] | None:
        """Return the part of the model that stays here, array (k,); None where all of it travels.

        Args:
            begun: array (k,), what the site has kept; None for as before round 1.

        Raises:
            StateError: it is of another model.
        """
        own = self.records.model.kept
        if own is None:
            return None
        own.begin_from(begun)
        own.load()
        return own.values()

    def noted(self, kept: KeptReferences) -> KeptReferences:
        """Return references with a note of the training records that this site has."""
        return of_records(kept, {self.participant: self.records.splits})

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features as all sites do, as `LocalRecords.apply_scaling`."""
        self.records.apply_scaling(scaling)

    def apply_references(self, references: References) -> None:
        """Judge by these references, as `LocalRecords.apply_references`."""
        self.records.apply_references(references)

    def losses_of(self, model: GlobalModel) -> SiteLosses:
        """Return the losses of the splits that have records, as `LocalRecords.losses_of`."""
        return self.records.losses_of(model)

    @property
    def scaling(self) -> FeatureScaling | None:
        """Return the scaling of the features that every contribution is made from; None without one."""
        return self.records.scaling

    @property
    def last_fault(self) -> str:
        """Return what was wrong with the last contribution, for the site's operator; empty where nothing was."""
        return self.records.fault
