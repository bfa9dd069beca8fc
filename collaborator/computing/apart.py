"""A site's computations in a process of its own, as the service sees them; it trusts no answer.

The service binds the plan itself to the model that the process has made: a model other than the one that the site
approved has another digest. Every array that comes back must have the shape and the width that the plan gives it.
What is in it may be wrong, as own code may be; it is clipped and counted as every contribution is.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from collaborator.computing import forms, messages
from collaborator.computing.codec import MAX_TEXT_BYTES
from collaborator.computing.computation import Computation, KnownRecords
from collaborator.computing.supervision import Briefing, Releases, Running, Supervision
from fedfair.aggregation.column_statistics import statistics_noise
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.header import Group
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import LocalProtocolError, RemoteProtocolError, StateError, TrainingError
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import is_noised, protects_records
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.local_rounds import round_weight
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig, SitePolicy
from fedfair.privacy.noise import system_entropy
from fedfair.privacy.planned_releases import sample_level_of, training_release
from fedfair.privacy.releases import GaussianRelease, Record, Release
from fedfair.run.reference_file import KeptReferences
from fedfair.statistics.table import Purpose
from fedfair.terms.at_sites import NOTHING, AddedChange, Remembered
from fedfair.terms.local_change import LocalChange
from fedfair.terms.table import training_layout
from fedfair.training.binding import PlanBinding, bound_to, stated_schema
from fedfair.training.contribution_draws import contribution_draws
from fedfair.training.reference_records import check_digest, with_digests
from fedfair.training.site_task import SiteTask

if TYPE_CHECKING:
    from collaborator.privacy_budget import PrivacyBudget
    from fedfair.news.event import News
    from fedfair.training.across_devices import DeviceGroup

MAX_MODEL_BYTES = 1 << 33
"""Of a model that nobody has approved yet: 8 GiB. What comes later is as long as the plan says."""

MAX_ANSWER_TEXT = 1 << 16
"""Of an answer to a question about a sum, beside its arrays."""

_VALUES_OF_A_RECORD = 64
"""More numbers than the losses of a record have beside its answer, its outputs and its scores."""

MAX_REPLACED = 1 << 40
SEED_BYTES = 32

_ROUND = next(purpose for purpose in Purpose if purpose.statistic.is_round)

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class ComputedSite:
    """What a process that computes for a site is given, and what the service compares its answers with.

    Attributes:
        plan: the plan, with the file that it was read from.
        config: `collaborator.yaml`.
        participant: whose records they are.
        code: the folder of the plan's code as the service has looked at it.
        code_digest: of it; None where the plan names none.
        references: those of an earlier run that the plan takes and this site has; None for none.
    """

    plan: Plan
    config: SiteConfig
    participant: ParticipantId
    code: Path
    code_digest: bytes | None
    references: KeptReferences | None = None


class SeparateComputation(Computation):
    """The computing process of one site.

    Args:
        site: what it computes.
        process: the process.
        draw: returns so many bytes that nobody else knows, for the seed of a contribution.
    """

    def __init__(
        self, site: ComputedSite, process: Supervision, draw: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._site, self._process, self._draw = site, process, draw
        self._schema = stated_schema(site.plan)
        self._binding: PlanBinding | None = None
        self._loaded: messages.Loaded | None = None
        self._unprotected: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Return that it is a process of its own, and every protection that is missing there."""
        return ("a process of its own, without keys and ledger", *self._unprotected)

    def binding(self) -> PlanBinding:
        """Return what the plan is bound to; see `Computation.binding`."""
        if self._binding is None:
            self._process.tell("begin", Briefing(self._begin, MAX_MODEL_BYTES + MAX_TEXT_BYTES, self._bind))
            self._process.settle()
        return _known(self._binding)

    def records(self) -> KnownRecords:
        """Read the records; see `Computation.records`."""
        self.binding()
        self._process.tell("load", Briefing(lambda _: messages.Load(), 4 * MAX_TEXT_BYTES, self._take_records))
        self._process.settle()
        return self._own(_known(self._loaded))

    def task(self, binding: PlanBinding, account: PrivacyBudget | None) -> tuple[SiteTask, DeviceGroup | None]:
        """Put records and model together; see `Computation.task`."""
        loaded = _known(self._loaded)
        record = None if account is None else account.record
        return SeparateTask(self._site, binding, loaded, self._process, record, self._draw), None

    def take_notices(self) -> list[News]:
        """Return what there is to say of processes that ended, once."""
        return self._process.take_notices()

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _begin(self, start: Running) -> messages.Begin:
        site, config = self._site, self._site.config
        own = SiteConfig(
            collaborator=config.collaborator,
            data=config.data,
            device=config.device,
            threads=config.threads,
            frozen=config.frozen,
            policy=SitePolicy(min_records=config.policy.min_records),
            withdrawals=config.withdrawals,
        )
        file = site.plan.file
        if file is None:
            raise LocalProtocolError("a plan that was read from no file has no computing process")
        digest = (site.code_digest or b"").hex()
        told = (str(file.resolve()), site.participant, own.model_dump_json(), digest)
        return messages.Begin(*told, str(start.code), str(start.scratch))

    def _bind(self, said: object) -> None:
        bound = _as(said, messages.Bound)
        layout = forms.layout_of(bound)
        made = bound_to((layout, bound.vector), self._site.plan, self._schema, self._site.code)
        if self._binding is not None and made.digest != self._binding.digest:
            raise StateError(
                "the computing process has made another model than before, of the same plan",
                "a module:function that draws must take its seed from the plan; start this site again",
            )
        self._binding = self._binding or made
        self._unprotected = bound.unprotected

    def _take_records(self, said: object) -> None:
        loaded = _as(said, messages.Loaded)
        if set(loaded.splits) - {"train", "validation", "test"} or "train" not in loaded.splits:
            raise RemoteProtocolError("records of other splits than train, validation and test")
        before = self._loaded or loaded
        if (loaded.digest, loaded.splits) != (before.digest, before.splits):
            remedy = "start it again, so that its checks are made"
            raise StateError("this site's records are others than when it started", remedy)
        if self._site.references is not None:
            check_digest(self._site.references, self._site.participant, loaded.digest)
        self._own(loaded)
        self._loaded = before

    def _own(self, loaded: messages.Loaded) -> KnownRecords:
        survey = None if loaded.survey is None else forms.survey_of(loaded.survey)
        held = sum(loaded.splits.values())
        for name, owners in loaded.owners.items():
            if owners.dtype != np.int64 or owners.shape != (loaded.splits.get(name),):
                raise RemoteProtocolError("whose the records are is said of others than there are")
        told = (loaded.profile, loaded.withheld, survey, loaded.owners)
        return KnownRecords(loaded.splits["train"], held, *told)


def planned_release(plan: Plan, layout: Layout, splits: Mapping[str, int], purpose: Purpose) -> Release | None:
    """Return what one site releases with one contribution; None where nothing of its records has noise.

    Args:
        plan: the plan.
        layout: of its model.
        splits: the site's number of records by split.
        purpose: of the sum.
    """
    row, training = purpose.statistic, splits["train"]
    if plan.statistics is not None:
        shared = statistics_noise(plan)
        return None if shared is None or not training else shared.release
    noised = distributed_dp(plan, layout.dimension)
    if noised is not None:
        return noised.sums.release(1) if row.is_round else None
    if not protects_records(plan):
        return None
    if row.is_round:
        return training_release(plan, training) if training else None
    if row.noise is None or not any(splits.values()):
        return None
    return GaussianRelease(row.release, row.noise(sample_level_of(plan)), 1.0, 1)


class SeparateTask(SiteTask):
    """The computations of one site in another process.

    Args:
        site: what it computes.
        binding: of the plan.
        loaded: what is known of its records.
        process: what is asked.
        record: writes a release down; None where the site keeps no ledger.
        draw: as in `SeparateComputation`.
    """

    def __init__(
        self,
        site: ComputedSite,
        binding: PlanBinding,
        loaded: messages.Loaded,
        process: Supervision,
        record: Record | None,
        draw: Callable[[int], bytes],
    ) -> None:
        self._draw = draw
        self._plan, self._participant, self._schema = site.plan, site.participant, binding.schema
        self._binding, self._splits, self._digest = binding, dict(loaded.splits), loaded.digest
        self._process, self._record = process, record
        self._specs = sum_specs(site.plan, binding.layout, binding.schema)
        self._header = training_layout(site.plan, binding.schema.classes)
        self._noised = distributed_dp(site.plan, binding.layout.dimension)
        self._own: NDArray[np.floating] | None = None
        self._fault = ""
        self._kept: NDArray[np.floating] | None = None
        self._begun: NDArray[np.floating] | None = None
        self._scaling: FeatureScaling | None = None
        self._references: References | None = None
        process.tell("assemble", Briefing(lambda _: messages.Assemble(), MAX_MODEL_BYTES, self._take_parts))
        process.settle()

    @property
    def layout(self) -> Layout:
        """Return the layout of the model."""
        return self._binding.layout

    @property
    def training_weight(self) -> int:
        """Return what this site's change of the model weighs in a round."""
        return round_weight(self._plan.training, self._splits["train"])

    @property
    def held_records(self) -> int:
        """Return how many records this site has, over all splits."""
        return sum(self._splits.values())

    @property
    def scaling(self) -> FeatureScaling | None:
        """Return the scaling of the features that every contribution is made from; None without one."""
        return self._scaling

    @property
    def kept(self) -> NDArray[np.floating] | None:
        """Return what the last local steps left in the part of the model that stays here; None without one."""
        return self._kept

    @property
    def last_fault(self) -> str:
        """Return what was wrong with the last contribution, for the site's operator; empty where nothing was."""
        return self._fault

    def contribution(
        self, request: SumRequest, model: GlobalModel, remembered: Remembered = NOTHING
    ) -> Contribution:
        """Return what this site adds to the requested sum; see `TrainingClient.contribution`."""
        spec = self._specs[request.purpose]
        question = forms.of_request(replace(request, spec=spec, terms={}), model, remembered, self._seed())

        def accept(said: object) -> Contribution:
            found = _as(said, messages.Contributed)
            _fits(found.header, (spec.header_length,), np.dtype(np.float64))
            _fits(found.body, (spec.body_length,), self.layout.dtype)
            self._note(found.fault, found.kept)
            return Contribution(found.header, found.body, min(found.replaced, MAX_REPLACED))

        limit = spec.upload_bytes + self._own_bytes + MAX_ANSWER_TEXT
        self._begun = remembered.kept
        found = self._process.ask(question, limit, accept, self._releases(request.purpose))
        return self._weighed(found) if request.purpose.statistic.is_round else found

    def draws(self, purpose: Purpose, round_number: RoundNumber, attempt: int) -> bytes:
        """Return 32 bytes that stand for what is drawn for a contribution, as `contribution_draws`."""
        about = (self._plan, self._splits["train"], system_entropy if is_noised(self._plan) else None)
        return contribution_draws(*about, purpose, round_number, attempt)

    def added(self, addend: Contribution) -> AddedChange:
        """Return what a memory reads of a contribution to a round that is about to be added in the clear."""
        return AddedChange.in_the_clear(self._header, addend, self._kept)

    def summable_change(
        self, model: GlobalModel, number: RoundNumber, attempt: int, remembered: Remembered = NOTHING
    ) -> LocalChange | None:
        """Return this site's change of a round for a masked sum; see `LocalRounds.summable_change`."""
        asked = forms.of_model(model), forms.of_memory(remembered), self._seed()
        question = messages.AskChange(int(number), attempt, *asked)

        def accept(said: object) -> LocalChange | None:
            if isinstance(said, messages.NoChange) and not self.training_weight:
                self._note(said.fault, None)
                return None
            moved = _as(said, messages.ChangeMade)
            _fits(moved.model, model.vector.shape, self.layout.dtype)
            if moved.weight != self.training_weight or not math.isfinite(moved.threshold):
                raise RemoteProtocolError("a change of another weight than that of this site's records")
            self._check_further(moved.further)
            self._note(moved.fault, moved.kept)
            told = (moved.weight, moved.threshold, moved.model, min(moved.replaced, MAX_REPLACED), moved.further)
            return LocalChange(*told, self._header)

        limit = model.vector.nbytes + 8 * self._header.length + self._own_bytes + MAX_ANSWER_TEXT
        self._begun = remembered.kept
        return self._process.ask(question, limit, accept, self._releases(_ROUND))

    def noised_numbers(self, model: GlobalModel, number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        """Return this site's part in a sum that protects it; see `LocalRounds.noised_numbers`."""
        noised = _known(self._noised)

        def accept(said: object) -> NDArray[np.int64]:
            found = _as(said, messages.NumbersMade)
            _fits(found.numbers, (noised.sums.length,), np.dtype(np.int64))
            self._note(found.fault, None)
            return found.numbers

        question = messages.AskNumbers(int(number), attempt, forms.of_model(model), self._seed())
        limit = 8 * noised.sums.length + MAX_ANSWER_TEXT
        return self._process.ask(question, limit, accept, self._releases(_ROUND))

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features as all sites do, from the next question on."""
        asked = messages.Scale(scaling.mean, scaling.scale)
        self._process.tell("scale", Briefing(lambda _: asked, MAX_ANSWER_TEXT, _done))
        self._scaling = scaling

    def apply_references(self, references: References) -> None:
        """Judge by these references, from the next question on."""
        if references is self._references:
            return
        asked = forms.of_references(references)
        self._process.tell("judge", Briefing(lambda _: asked, MAX_ANSWER_TEXT, _done))
        self._references = references

    def losses_of(self, model: GlobalModel) -> dict[str, Losses]:
        """Return the losses of the splits that have records; see `LocalRecords.losses_of`."""
        schema = self._schema
        values = _VALUES_OF_A_RECORD + 4 * math.prod(schema.output_shape) + 4 * math.prod(schema.targets)
        limit = 8 * values * self.held_records + MAX_ANSWER_TEXT
        question = messages.AskLosses(forms.of_model(model), self._begun)
        return self._process.ask(question, limit, self._losses)

    def own_values(self, begun: NDArray[np.floating] | None) -> NDArray[np.floating] | None:
        """Return the part of the model that stays here; see `TrainingClient.own_values`."""
        own = self._own
        if own is None or begun is None:
            return own
        if begun.shape != own.shape:
            raise StateError(
                f"this site keeps {begun.size} values of its part of the model, which has {own.size}",
                "copy this site's state folder back from its newest backup",
            )
        return begun.astype(own.dtype)

    def noted(self, kept: KeptReferences) -> KeptReferences:
        """Return references with a note of the training records that this site has."""
        return with_digests(kept, {self._participant: self._digest})

    # ------------------------------------------------------------------------------------- what answers must be

    @property
    def _own_bytes(self) -> int:
        return 0 if self._own is None else self._own.nbytes

    def _releases(self, purpose: Purpose) -> Releases:
        """Return what may be released with a contribution: what the plan says, and nothing else."""
        return Releases(planned_release(self._plan, self.layout, self._splits, purpose), self._record)

    def _seed(self) -> str:
        return self._draw(SEED_BYTES).hex()

    def _take_parts(self, said: object) -> None:
        found = _as(said, messages.Assembled)
        own = found.own
        if own is not None and (own.ndim != 1 or own.dtype != self.layout.dtype):
            raise RemoteProtocolError("a part of the model that stays here, and is no vector of its width")
        if found.weight != self.training_weight:
            raise RemoteProtocolError("a weight that is not that of this site's records")
        self._own = own

    def _note(self, fault: str, kept: NDArray[np.floating] | None) -> None:
        """Note what was wrong with a contribution, and what it left in the part of the model that stays here."""
        if kept is not None:
            own = self._own
            if own is None:
                raise RemoteProtocolError("a part of the model that stays here, of a model that has none")
            _fits(kept, own.shape, own.dtype)
        self._fault = "".join(one if one.isprintable() else " " for one in fault)
        self._kept = kept

    def _check_further(self, further: dict[str, NDArray[np.floating]]) -> None:
        shapes = {part.name: part.shape for part in self._header.fields if not isinstance(part, Group)}
        for name, values in further.items():
            if name in {"weight", "threshold"} or name not in shapes:
                raise RemoteProtocolError("a change with a field that the sum does not have")
            _fits(values, shapes[name], np.dtype(np.float64))

    def _weighed(self, found: Contribution) -> Contribution:
        """Refuse a round's contribution of which no memory could read what was added."""
        sums = self._header.read(found.header)
        if not np.isfinite(found.header).all():
            raise TrainingError(
                "the header of this site's contribution holds a NaN or an infinity; nothing was sent",
                "lower learning_rate, or look for missing or extreme values in the local data",
            )
        if float(sums["weight"]) != float(self.training_weight):
            raise TrainingError("this site's contribution has another weight than its records; nothing was sent")
        return found

    def _losses(self, said: object) -> dict[str, Losses]:
        found = _as(said, messages.LossesFound)
        for split, losses in found.splits.items():
            count = self._splits.get(split)
            arrays = (losses.values, losses.labels, losses.predictions, losses.scores, losses.figures)
            if count is None or any(array.ndim < 1 or len(array) != count for array in arrays):
                raise RemoteProtocolError("losses of other records than this site has")
            _fits(losses.values, (count,), np.dtype(np.float64))
            _check_answers(losses, self._schema)
        return forms.losses_of(found)


def _check_answers(losses: messages.SplitLosses, schema: FeatureSchema) -> None:
    """Refuse answers that figures of classes could not be made of."""
    labels, predictions, scores = losses.labels, losses.predictions, losses.scores
    same = labels.shape == predictions.shape or not losses.has_classes
    if not same or (schema.classes and losses.has_classes and not _are_classes(labels, schema.classes)):
        raise RemoteProtocolError("losses whose answers are no classes of the plan")
    if scores.ndim != 2 or scores.shape[1] > max(schema.classes, math.prod(schema.output_shape), 1):
        raise RemoteProtocolError("scores of other outputs than the plan's model has")
    for optional in (losses.excess, losses.answered):
        if optional.size and len(optional) != len(labels):
            raise RemoteProtocolError("losses over references of other records than this site has")


def _are_classes(labels: NDArray[np.generic], classes: int) -> bool:
    return labels.dtype == np.int64 and bool(np.isin(labels, np.arange(classes)).all())


def _as(said: object, kind: type[Kind]) -> Kind:
    if type(said) is not kind:
        raise RemoteProtocolError(f"{type(said).__name__} in place of {kind.__name__}")
    return said


def _known(value: Kind | None) -> Kind:
    if value is None:
        raise LocalProtocolError("the computing process was not told to begin")
    return value


def _fits(array: NDArray[np.generic], shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise RemoteProtocolError(f"an array of {array.shape} {array.dtype} where {shape} {dtype} belongs")


def _done(said: object) -> None:
    _as(said, messages.Settled)
