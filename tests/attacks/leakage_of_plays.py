"""What a lying aggregator and its colluders have learnt after many rounds with real sites, by linear algebra.

`leakage` enumerates every pattern of answers of one round. Here the rounds are many and the sites real:
several attempts at a sum about one state, sums that are opened again, new sessions, processes that start again,
and members that are put back to an earlier state by a snapshot. The aggregator chooses every message, at random.

The model is symbolic and takes the worst case: what a site adds to a sum about one state is one unknown x(site),
whatever it draws, as where one batch holds all records. Every upload is x plus masks, each mask is an unknown of
its own round, and a mask is known once t shares of it were sent, or belong to a colluder. So one round gives the
sums over those components of honest uploaders that hidden pair masks connect and whose own masks are known
(`leakage`). All sums about one state together span a space; a vector of it that is not zero and names fewer honest
sites than a sum must have is a leak. Nothing here knows the rules of the sites.
"""

import hashlib
import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.effects import Send, SendTo, ServerEffect, SiteEffect, StateVouched
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import SecaggPolicy, least_survivors
from fedfair.secagg.participant import Participant
from fedfair.secagg.round_graph import Contributors
from fedfair.secagg.round_messages import (
    PairMasks,
    PairMasksRequest,
    RoundStart,
    Survivors,
    UnmaskRequest,
    UnmaskShares,
    Upload,
    consistency_fields,
)
from fedfair.secagg.round_start import round_transcript
from fedfair.secagg.server_state import Move, Resting, ServerState
from fedfair.secagg.session import SessionSite
from fedfair.secagg.signing import sign
from fedfair.secagg.transcript import RoundSubject
from tests.attacks.leakage import Members, _components
from tests.secagg.federation_in_memory import Wire, arrived_of, draws_of, shape_of, signing_key, terms_of

REQUEST = hashlib.sha256(b"the request").digest()
STATES = tuple(RoundSubject(hashlib.sha256(b"state %d" % place).digest(), REQUEST) for place in range(2))
KNOWN = Update(np.array([2.0, 1.0]), np.zeros(0), 1)
"""What every site adds to an evaluation, whatever the state: it draws nothing."""


def computed(purpose: str, subject: RoundSubject) -> bytes:
    """Return what a site's worker says is one computation: of one state, or of any where nothing is drawn."""
    about = subject.state_digest if purpose == "training" else b"any state"
    return hashlib.sha256(b"computed" + purpose.encode() + about).digest()


@dataclass
class SeenRound:
    """Everything of one T_r that can be known.

    Attributes:
        start: its start.
        uploads: who has uploaded.
        own: from a member to the holders of shares of its own mask that were sent.
        pairs: (owner, gone) where the owner has handed over their mask, under its own.
    """

    start: RoundStart
    uploads: set[int] = field(default_factory=set)
    own: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    pairs: set[tuple[int, int]] = field(default_factory=set)

    def learnt(self, colluders: frozenset[int]) -> list[Members]:
        """Return the sets of honest sites whose sum this round has given away."""
        cohort, needed = set(self.start.cohort), self.start.threshold
        inside = cohort & colluders

        def known(owner: int, holders: set[int]) -> bool:
            return owner in self.uploads and len(holders | inside) >= needed

        honest = sorted(cohort - colluders)
        open_own = {member for member in honest if known(member, self.own[member])}
        hidden = [
            (i, j)
            for i, j in itertools.combinations(honest, 2)
            if not (i in open_own and (i, j) in self.pairs) and not (j in open_own and (j, i) in self.pairs)
        ]
        return [part for part in _components(honest, hidden) if part <= open_own]


@dataclass
class Findings:
    """What one play has come to.

    Attributes:
        sums: from what a sum was computed from to the sets of honest sites whose sums are known.
        leaks: in words.
    """

    sums: dict[bytes, set[Members]] = field(default_factory=lambda: defaultdict(set))
    leaks: list[str] = field(default_factory=list)


def isolated(sums: set[Members], fewest: int) -> list[Members]:
    """Return the smallest sets, of fewer than `fewest` sites, that some combination of sums is about alone."""
    everybody = sorted(frozenset().union(*sums))
    rows = np.array([[float(member in part) for member in everybody] for part in sums])
    rank = np.linalg.matrix_rank(rows)
    for size in range(1, min(fewest, len(everybody) + 1)):
        found = []
        for chosen in itertools.combinations(range(len(everybody)), size):
            # Some combination is zero outside of `chosen` just where the other columns alone have a lower rank.
            outside = np.delete(rows, chosen, axis=1)
            if outside.shape[1] == 0 or np.linalg.matrix_rank(outside) < rank:
                found.append(frozenset(everybody[place] for place in chosen))
        if found:
            return found
    return []


class LeakingPlay(Wire):
    """An aggregator that asks what it likes, as often as it likes; colluders do all that it wants.

    Args:
        members: how many sites.
        colluders: how many of them, the last ones, help the aggregator.
        reopened: `max_reopened_sums` of every honest site.
        fewest: contributors of a sum by the plan.
        seed: of the aggregator's choices.
    """

    def __init__(self, members: int, colluders: int, *, reopened: int, fewest: int, seed: int) -> None:
        self.colluders = frozenset(range(members - colluders + 1, members + 1))
        self.fewest, self.random = fewest, random.Random(seed)  # noqa: S311 - a play
        honest = SecaggPolicy(
            least_members=fewest, greatest_attempts=100, max_reopened_sums=reopened, least_survivors=fewest
        )
        self.willing = replace(honest, any_cohort=frozenset({"training", "evaluation"}))
        self.held = dict.fromkeys(range(1, members + 1), STATES[0])
        self.rounds: dict[bytes, SeenRound] = {}
        self.purpose = "training"
        self.happened: dict[str, int] = defaultdict(int)
        shapes = {"training": shape_of(2), "evaluation": shape_of(0, 2)}
        super().__init__(members, terms_of(members, colluders), shapes, honest)
        self.updates = dict.fromkeys(self.roster.indices, KNOWN)  # every member adds something; see `_contribute`

    def site(self, index: int) -> Participant:
        """Start a process of a site from its log; a colluder's has no rules of its own."""
        policy = self.willing if index in self.colluders else self.policy
        mine = SessionSite(index, self.roster, signing_key(index), self.plan, policy, self.shapes)
        return Participant(mine, self.randomness, self.logs[index], self.remembered[index])

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        held = self.held[member]
        return self.sites[member].receive(message, held, computed(self.purpose, held))

    def carry_out(self, member: int, effects: list[SiteEffect]) -> list[Send]:
        for effect in effects:
            if isinstance(effect, StateVouched):
                # The aggregator has sent the snapshot, and enough members have signed its digest.
                self.happened["snapshots taken"] += 1
                self.held[member] = next(each for each in STATES if each.state_digest == effect.state_digest)
        return super().carry_out(member, effects)

    # -------------------------------------------------------------- what the aggregator does

    def play(self, steps: int) -> Findings:
        """Do `steps` things, and return what is known afterwards."""
        kinds = (*(self.new_round,) * 4, self.ask_again, self.restart_some, self.put_back)
        self.new_session()
        for _ in range(steps):
            self.random.choice(kinds)()
        return self.findings()

    def new_session(self) -> None:
        """Set a session up with all members; who holds another state than the others is sent it."""
        self.happened["sessions"] += 1
        try:
            self.deliver(self.server.open_session(self.roster.indices))
        except SecaggError as refusal:
            raise AssertionError(f"an honest set-up is refused: {refusal}") from refusal

    def put_back(self) -> None:
        """Let most members hold one state, and bring the others to it by a snapshot that those vouch for."""
        state, other = self.random.sample(STATES, 2)
        ahead = self.random.sample(self.roster.indices, self.random.randint(self.terms.threshold, self.members))
        self.held = {member: state if member in ahead else other for member in self.roster.indices}
        self.new_session()

    def restart_some(self) -> None:
        """Kill some sites; most often they get keys again."""
        for member in self.some():
            self.happened["restarts"] += 1
            self.restart(member)
        if self.random.random() < 0.7:
            self.new_session()

    def new_round(self) -> None:
        """Ask some sites for a sum about the state that most of them hold, and open what they will open."""
        self.purpose = self.random.choice(("training", "training", "evaluation"))
        cohort, state = self.some(self.fewest), max(STATES, key=list(self.held.values()).count)
        clips = (1.0,) * len(self.shapes[self.purpose].groups)
        unanimous = self.purpose == "evaluation" or self.random.random() < 0.2
        self.server._phases.enter(Move(Resting(ServerState.READY)))  # it gives up whatever was under way
        self.collect(self.server.start_round(self.purpose, state, clips, cohort, unanimous=unanimous))
        self.open()

    def ask_again(self) -> None:
        """Ask for the bytes of the last round again, and for other sets."""
        record = self.server.round_record
        if record is not None:
            self.collect(self.server.reopen(replace(record, survivors=(), votes=())))
            self.open()

    def some(self, least: int = 0) -> tuple[int, ...]:
        """Return some members; mostly nearly all."""
        size = self.random.choice((*range(least, self.members + 1), self.members, self.members - 1))
        return tuple(sorted(self.random.sample(self.roster.indices, size)))

    def collect(self, effects: Sequence[ServerEffect]) -> None:
        """Hand the start of a round to whom it is for, and keep the uploads; some are lost on their way."""
        for effect in effects:
            if isinstance(effect, SendTo) and self.random.random() < 0.95:
                for send in self.said(effect.member, effect.message):
                    self.note_upload(effect.member, send)

    def said(self, member: int, message: bytes) -> list[Send]:
        """Return what a site says to a message; a refusal says nothing."""
        try:
            sends = self.carry_out(member, self.hand_over(member, message))
        except SecaggError:
            self.happened["refusals"] += 1
            return []
        for send in sends:
            if kind_of(send.message) is Kind.UNMASK_SHARES:
                self.note_answer(send.message)
            if kind_of(send.message) is Kind.PAIR_MASKS:
                self.note_masks(send.message)
        return sends

    def note_upload(self, member: int, send: Send) -> None:
        if kind_of(send.message) is not Kind.UPLOAD:
            return
        upload, state = Upload.decode(send.message), arrived_of(self.server)
        seen = self.rounds.setdefault(upload.transcript, SeenRound(state.start))
        assert upload.transcript == state.transcript
        seen.uploads.add(member)
        if member not in state.uploads:
            state.add_upload(member, send.message, send.vector)

    def note_answer(self, message: bytes) -> None:
        answer = UnmaskShares.decode(message)
        seen = self.rounds[answer.transcript]
        self.happened["answers"] += 1
        for owner, _ in answer.shares:
            seen.own[owner].add(answer.member)

    def note_masks(self, message: bytes) -> None:
        handed_over = PairMasks.decode(message)
        self.happened["masks handed over"] += len(handed_over.masks)
        self.rounds[handed_over.transcript].pairs |= {(handed_over.member, gone) for gone, _ in handed_over.masks}

    def open(self) -> None:
        """Ask every site for a vote for one set, or for one of two, and then to open them with all votes."""
        state = arrived_of(self.server)
        uploaded, cohort = sorted(state.uploads), state.start.cohort
        if len(uploaded) < self.fewest:
            return
        sets = [tuple(uploaded)]
        if self.random.random() < 0.4:
            sets.append(tuple(sorted(self.random.sample(uploaded, self.random.randint(2, len(uploaded))))))
        votes: dict[tuple[int, ...], dict[int, bytes]] = {chosen: {} for chosen in sets}
        for member in uploaded:
            chosen = self.random.choice(sets)
            if chosen != cohort and member in chosen:
                self.vote(member, chosen, votes)
        for member, chosen in itertools.product(uploaded, dict.fromkeys(sets)):
            if member in chosen and self.random.random() < 0.9:
                given = () if chosen == cohort else tuple(sorted(votes[chosen].items()))
                envelopes = tuple((one, state._envelopes.get(one, member)) for one in chosen if one != member)
                self.said(member, UnmaskRequest(state.transcript, chosen, given, envelopes).encode())

    def vote(self, member: int, chosen: tuple[int, ...], votes: dict[tuple[int, ...], dict[int, bytes]]) -> None:
        """Note a site's vote; a colluder signs whatever it is asked."""
        transcript = arrived_of(self.server).transcript
        for colluder in self.colluders & set(chosen):
            fields = consistency_fields(transcript, chosen, colluder)
            votes[chosen][colluder] = sign(signing_key(colluder), "vote", *fields)
        if member not in self.colluders:
            self.said(member, PairMasksRequest(transcript, chosen).encode())
            if len(chosen) > self.fewest and self.random.random() < 0.2:
                # Somebody else has vanished meanwhile, or so the aggregator says.
                vanished = self.random.choice([one for one in chosen if one != member])
                chosen = tuple(one for one in chosen if one != vanished)
                votes.setdefault(chosen, {})
                self.said(member, PairMasksRequest(transcript, chosen).encode())
            for send in self.said(member, Survivors(transcript, chosen).encode()):
                found, kept = arrived_of(self.server).votes, arrived_of(self.server)._added
                arrived_of(self.server)._added = told = Contributors(arrived_of(self.server).graph)
                told.members.update(chosen)
                arrived_of(self.server).add_vote(member, send.message)
                arrived_of(self.server)._added = kept
                votes[chosen][member] = found.pop(member)

    def _contribute(self, member: int) -> list[SiteEffect]:
        if self.purpose == "evaluation":
            return self.sites[member].contribute(KNOWN, bytes(32))
        fresh = Update(np.array([self.random.random()]), np.zeros(2), 1)
        return self.sites[member].contribute(fresh, draws_of(fresh))

    # -------------------------------------------------------------- what it has learnt

    def findings(self) -> Findings:
        """Return every sum that is known, and every leak."""
        found = Findings()
        for transcript, seen in self.rounds.items():
            start = seen.start
            assert round_transcript(start, self.shapes[start.purpose].digest()) == transcript
            for part in seen.learnt(self.colluders):
                found.sums[computed(start.purpose, start.subject)].add(part)
        least = max(self.fewest, least_survivors(self.terms.mode, self.fewest, self.terms.colluders))
        for sums in found.sums.values():
            for part in isolated(sums, least - len(self.colluders)):
                found.leaks.append(f"the sums over {sorted(map(sorted, sums))} give the one over {sorted(part)}")
        return found
