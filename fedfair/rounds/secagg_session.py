"""Keeps what outlives a single masked sum: the session, its members, when it must be renewed, and the clip.

Joins the names of the federation to the numbers of the roster. `masked_sum` drives one sum with it; the protocol
itself is `fedfair.secagg.server`'s. The clock is an argument: a session also ends after a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.aggregation.clip_rule import clip_rule
from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.masked_encoding import clips_of, header_parts, plain_totals, sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.round_subject import SumKey, round_subject
from fedfair.aggregation.sum_kinds import sum_kind
from fedfair.ids import ParticipantId
from fedfair.plan.derived import quorum
from fedfair.plan.purpose import Purpose
from fedfair.rounds.sum_round import OutgoingMessage
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server import Server, ServerState
from fedfair.secagg.session import renewal_reason

if TYPE_CHECKING:
    from fedfair.aggregation.model_layout import Layout
    from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
    from fedfair.aggregation.running_sum import Totals
    from fedfair.plan.feature_schema import FeatureSchema
    from fedfair.plan.schema import Plan
    from fedfair.rounds.events import UnfinishedSum
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.effects import ServerEffect
    from fedfair.secagg.opened_sum import OpenedSum
    from fedfair.secagg.shamir import Randomness

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The name of a run, in every round of it.

    Attributes:
        run_id: its name.
        plan_digest: 32 bytes, of the plan that it runs.
    """

    run_id: str
    plan_digest: bytes


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A masked round that can be opened again.

    Attributes:
        record: what the server needs for it.
        asked: who must send the bytes again that they sent.
        is_settled: whether these are the survivors, and the sum is opened for all of them or for nobody.
    """

    record: bytes
    asked: tuple[ParticipantId, ...]
    is_settled: bool


def is_due(unfinished: UnfinishedSum, run_id: str, training_run: TrainingRun) -> bool:
    """Return whether an interrupted sum is the one that the training run asks for next.

    Otherwise the sum was done, or the training run is an older one, and the record is worthless.

    Raises:
        LocalProtocolError: the record is damaged.
    """
    request = training_run.next_sum()
    if request is None or request.attempt > unfinished.attempt:
        return False
    key = SumKey(run_id, request.purpose, int(request.round), request.query)
    start = RoundRecord.decode(unfinished.record).start
    return start.subject == round_subject(key, training_run.model, training_run.scaling)


class SecaggSession:
    """The aggregator's side of secure aggregation, over a whole run.

    Args:
        plan: its terms; its sums are masked.
        identity: what the run is called.
        layout: of the model.
        schema: of the features.
        randomness: source of nonces: `secrets.token_bytes`.
        clock: seconds since any fixed moment.
        clip: the clip that an earlier process of this run had come to; None for a new run.

    Attributes:
        server: the protocol's own state machine.
        clip: the largest change of one parameter that is summed unclipped in the next round.

    Raises:
        PlanError: the plan cannot be protected, or its roster is incomplete.
    """

    def __init__(
        self,
        plan: Plan,
        identity: RunIdentity,
        layout: Layout,
        schema: FeatureSchema,
        randomness: Randomness,
        clock: Callable[[], float],
        clip: float | None = None,
    ) -> None:
        names = plan.federation.collaborators
        self._shapes = sum_shapes(plan, layout, schema)
        self._parts = header_parts(plan, schema)
        self.server = Server(
            roster_of(plan),
            session_plan(plan, identity.plan_digest),
            self._shapes,
            randomness,
            layout.dtype,
            quorum=quorum(plan),
        )
        self._run_id = identity.run_id
        self._ring_bits = plan.secure_aggregation.ring_bits
        self._noised = distributed_dp(plan, layout.dimension)
        self._clip_rule = clip_rule(plan)
        self.clip = clip if self._clip_rule.follows and clip is not None else self._clip_rule.first
        self._clock = clock
        self._began = 0.0
        self._names = dict(enumerate((ParticipantId(name) for name in names), start=1))
        self._indices = {name: index for index, name in self._names.items()}
        self._without_keys: set[int] = set()

    @property
    def vector_lengths(self) -> frozenset[int]:
        """Return every length that a masked vector of this run has, in bytes."""
        return frozenset(shape.vector_bytes(self._ring_bits) for shape in self._shapes.values())

    def index(self, participant: ParticipantId) -> int:
        """Return a collaborator's number in the roster."""
        return self._indices[participant]

    def name(self, index: int) -> ParticipantId:
        """Return the collaborator with a number of the roster."""
        return self._names[index]

    def note_keys(self, participant: ParticipantId, session: bytes) -> None:
        """Note of which session a process that connected has keys; empty for none."""
        index = self._indices[participant]
        if session and session == self.server.session_id:
            self._without_keys.discard(index)
        else:
            self._without_keys.add(index)

    def renewal(self, cohort: Iterable[int]) -> str:
        """Return why a session must be set up before the next round of `cohort`; empty if the present one does."""
        if self.server.state is not ServerState.READY:
            return "there is no session"
        present = frozenset(cohort)
        return renewal_reason(
            rounds=self.server.round,
            hours=(self._clock() - self._began) / SECONDS_PER_HOUR,
            members=frozenset(self.server.members),
            present=present,
            restarted=bool(self._without_keys & present),
        )

    def session_is_ready(self) -> None:
        """Note that everybody in the session has its keys from now on."""
        self._began = self._clock()
        self._without_keys -= set(self.server.members)

    def start_round(
        self, request: SumRequest, model: GlobalModel, scaling: FeatureScaling | None, cohort: Iterable[int]
    ) -> list[ServerEffect]:
        """Ask `cohort`, who are members of the session, for a sum about `model` under `scaling`."""
        purpose = request.purpose
        clips = clips_of(purpose, self.clip, self._shapes)
        # A retry of a training sum draws fresh batches. What a site adds to any other sum is always the same, so
        # that may leave it again only if it is certain that no other sum with it was opened.
        unanimous = not sum_kind(purpose).is_round
        key = SumKey(self._run_id, purpose, int(request.round), request.query)
        subject = round_subject(key, model, scaling)
        return self.server.start_round(purpose.value, subject, clips, cohort, unanimous=unanimous)

    @property
    def round_record(self) -> bytes:
        """Return what `reopen` needs for the masked round under way; empty before there is one."""
        record = self.server.round_record
        return b"" if record is None else record.encode()

    def reopen(self, record: bytes) -> list[ServerEffect]:
        """Ask for the very same round again."""
        return self.server.reopen(RoundRecord.decode(record))

    def interrupted(self, record: bytes) -> Interrupted:
        """Return who was asked in a round, and who survived it."""
        found = RoundRecord.decode(record)
        asked = tuple(self._names[index] for index in found.asked)
        return Interrupted(record, asked, is_settled=bool(found.survivors))

    def announcement_for(self, participant: ParticipantId) -> OutgoingMessage | None:
        """Return what a collaborator is to be told of the sum that was opened last.

        None where it was not asked for that sum, or where another one has begun since.
        """
        record, told = self.server.round_record, self.server.announcement
        if record is None or told is None or self._indices[participant] not in record.start.cohort:
            return None
        return OutgoingMessage(participant, told.message, told.vector)

    def totals(self, purpose: Purpose, opened: OpenedSum) -> Totals:
        """Return the totals of an opened sum."""
        if self._noised is not None:
            return self._noised.totals(opened.body, opened.contributors)
        return plain_totals(opened, self._parts[purpose])

    def accept(self, opened: OpenedSum) -> None:
        """Note that the run has taken the totals of an opened sum: the clip follows the sizes of its changes."""
        self.clip = self._clip_rule.after(self.clip, opened.histogram)
