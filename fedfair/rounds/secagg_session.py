"""Keeps what outlives a single masked sum: the session, its members, and when it must be renewed.

Joins the names of the federation to the numbers of the roster. `masked_sum` drives one sum with it; the protocol
itself is `fedfair.secagg.server`'s. The clock is an argument: a session also ends after a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.aggregation.masked_encoding import MaskedTotals, clips_of, sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.round_subject import round_subject
from fedfair.ids import ParticipantId
from fedfair.plan.derived import quorum
from fedfair.rounds.sum_round import OutgoingMessage
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server import Server
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.session import renewal_reason

if TYPE_CHECKING:
    from fedfair.aggregation.model_layout import Layout
    from fedfair.aggregation.requests import SumRequest
    from fedfair.plan.feature_schema import FeatureSchema
    from fedfair.plan.schema import Plan
    from fedfair.rounds.events import UnfinishedSum
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.effects import ServerEffect
    from fedfair.secagg.recovery import KeepBody
    from fedfair.secagg.shamir import Randomness
    from fedfair.secagg.transcript import RoundSubject

SECONDS_PER_HOUR = 3600.0


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


def is_due(unfinished: UnfinishedSum, plan_digest: bytes, training_run: TrainingRun) -> bool:
    """Return whether an interrupted sum is the one that the training run asks for next.

    Otherwise the sum was done, or the training run is an older one, and the record is worthless.

    Raises:
        LocalProtocolError: the record is damaged.
    """
    request = training_run.next_sum()
    if request is None or request.attempt > unfinished.attempt:
        return False
    start = RoundRecord.decode(unfinished.record).start
    return start.subject == round_subject(training_run.state.digest(plan_digest), request)


class SecaggSession:
    """The aggregator's side of secure aggregation, over a whole run.

    Args:
        plan: its terms; its sums are masked.
        plan_digest: of the plan, 32 bytes.
        layout: of the model.
        schema: of the features.
        randomness: source of nonces: `secrets.token_bytes`.
        clock: seconds since any fixed moment.
        keep: where the body of an opened sum is kept; None for memory.

    Attributes:
        server: the protocol's own state machine.
        totals: how opened sums are read.

    Raises:
        PlanError: the plan cannot be protected, or its roster is incomplete.
    """

    def __init__(
        self,
        plan: Plan,
        plan_digest: bytes,
        layout: Layout,
        schema: FeatureSchema,
        randomness: Randomness,
        clock: Callable[[], float],
        keep: KeepBody | None = None,
    ) -> None:
        names = plan.federation.collaborators
        self._shapes = sum_shapes(plan, layout, schema)
        self.totals = MaskedTotals(plan, layout, schema)
        self.server = Server(
            roster_of(plan),
            session_plan(plan, plan_digest),
            self._shapes,
            randomness,
            layout.dtype,
            quorum=quorum(plan),
            keep=keep,
        )
        self._ring_bits = plan.secure_aggregation.ring_bits
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
        if present <= set(self.server.members) and self.server.without_neighbours(present):
            return "too few of the members are present with whom some share their masks"
        return renewal_reason(
            rounds=self.server.round,
            hours=(self._clock() - self._began) / SECONDS_PER_HOUR,
            members=frozenset(self.server.members),
            present=present,
            restarted=bool(self._without_keys & present),
        )

    def session_is_ready(self) -> None:
        """Note that every member of the session has its keys from now on."""
        self._began = self._clock()
        self._without_keys -= set(self.server.members)

    def start_round(
        self,
        request: SumRequest,
        subject: RoundSubject,
        clip: float,
        cohort: Iterable[int],
    ) -> list[ServerEffect]:
        """Ask `cohort`, who are members of the session, for a sum.

        Args:
            request: which sum.
            subject: what it is about.
            clip: the largest change of one parameter that counts in full.
            cohort: roster indices.
        """
        purpose = request.purpose
        clips = clips_of(purpose, clip, self._shapes)
        # A retry of a training sum draws fresh batches. What a site adds to any other sum is always the same, so
        # that may leave it again only if it is certain that no other sum with it was opened.
        unanimous = not purpose.statistic.draws_anew
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
        """Return the message that tells a collaborator the sum that was just opened; None where none is."""
        told = self.server.announcement
        return None if told is None else OutgoingMessage(participant, told.message, told.vector)
