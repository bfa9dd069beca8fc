"""A whole run in memory, for what must be the same everywhere: real sites with real files, and no socket.

Everything that decides is the product's: workers, their mailboxes, logs, records and kept states, the
federation, and the aggregator's journal. Only streams are played: two queues for each site, which a break empties.
A process is killed by forgetting it; what the next one knows is what the last one had written. Whoever plays
chooses the order.

Failure conditions, written first: a site holds a state that the aggregator never had; a sum leads a site elsewhere
than the aggregator; a site adds to a sum about another state than its own; an honest site is sent away or leaves;
a run hangs without a deadline.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator.journal import Journal, JournalEntry
from aggregator.preparation import _resume
from collaborator.mailbox import MAX_SUMS, MAX_WAITING, Mailbox
from collaborator.masked_worker import MaskedWorker
from collaborator.masking_policy import masking_policy
from collaborator.plain_worker import PlainWorker
from collaborator.run_follower import RunFollower
from collaborator.run_recording import RunRecording, SiteFiguresLog
from collaborator.run_store import RunStore
from collaborator.site_history import RequestRecord
from collaborator.worker import Worker
from collaborator.write_ahead import WriteAheadLog
from fedfair.aggregation.masked_encoding import MaskedTotals, header_parts, sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.running_sum import PlainSum
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.ids import ParticipantId
from fedfair.plan.derived import is_masked
from fedfair.plan.digest import format_digest
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.policy.decision import SiteRules
from fedfair.policy.site_config import SitePolicy
from fedfair.results.outcome import RunSubject
from fedfair.rounds import events
from fedfair.rounds.continued import Continued, Seen
from fedfair.rounds.federation import Federation
from fedfair.rounds.phases import Phase
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.run.packed_state import pack_state
from fedfair.run.replica import RunReplica
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.session import SessionSite
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from fedfair.wire.frames import Abstain, Chunk, CollaboratorFrame, SecaggMessage, SumStart, UploadStart, Welcome
from fedfair.wire.receiving import ForWorker, ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals
from tests import plans

NAMES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
RUN_ID = "5" * 32
POLICY = SitePolicy(allow_plain_sums=True, max_attempts=100, min_collaborators=3)

_Result = TypeVar("_Result")


def signing_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def plan_of(
    rounds: int,
    protection: dict[str, object],
    *,
    every: int = 3,
    task: plans.Section = MappingProxyType({}),
    **training: object,
) -> Plan:
    """Return a plan of four clinics, of which three are enough."""
    roster = {name: format_public_key(signing_key(name).public_key().public_bytes_raw()) for name in NAMES}
    values = plans.small_plan(
        rounds=rounds,
        names=NAMES,
        federation={"roster": roster, "min_collaborators": 3, "max_attempts": 100},
        protection=protection,
        **training,
    )
    evaluation = {"every": every, "bins": 16, "min_group": 1}
    return Plan.model_validate(plans.over(values, evaluation=evaluation, task=task))  # type: ignore[arg-type]


@dataclass
class Counts:
    """Figures of a play."""

    digests: int = 0
    sums: int = 0
    happened: Counter[str] = field(default_factory=Counter)


class Site:
    """One clinic: files that outlive its processes, and the process that runs now."""

    def __init__(self, play: ReplayedPlay, name: ParticipantId) -> None:
        self.play, self.name = play, name
        self.folder = play.folder / name
        self.folder.mkdir()
        self.connected = False
        self.network: deque[ForWorker] = deque()  # on its way to this site
        self.mailbox = Mailbox()
        self.said: deque[events.Event] = deque()  # on its way to the aggregator
        self.worker = self._start()

    @property
    def kept(self) -> Path:
        """Return the file in which the state of the run outlives a process."""
        return self.folder / "site.run"

    @property
    def digest(self) -> bytes:
        """Return the digest of its copy of the run."""
        return self.worker.held.digest

    def restart(self) -> None:
        """Kill the process, and start another one over its files."""
        self.close()
        self.worker = self._start()

    def close(self) -> None:
        """End the process; what was written is there."""
        self.worker.close()
        self.worker._worker.shutdown(wait=True)  # type: ignore[attr-defined]  # of both kinds of workers

    def _start(self) -> Worker:
        play, plan, binding = self.play, self.play.plan, self.play.binding
        # As `participation.worker_of` does it, without an identity on the disk.
        masked = is_masked(plan)
        log = WriteAheadLog(self.folder / "site.secagg") if masked else None
        record = RequestRecord(
            self.folder / "site.answered", SiteRules(plan, binding.schema, POLICY, self.name, 100)
        )
        store = RunStore(self.kept, record.has_answered)
        model = flat_model(plan, binding.schema, torch.device("cpu"), play.folder)
        task = TrainingClient(plan, self.name, play.records[self.name], model, masked=masked)
        run = TrainingRun(plan, binding.layout, binding.schema, binding.vector)
        replica, found = RunReplica(run, binding.digest, store), store.load(run.initial)
        if found is not None:
            replica.restore(*found)
        subject = RunSubject(plan, format_digest(binding.digest), binding.layout, binding.schema)
        figures = SiteFiguresLog(self.folder, self.name)
        recording = RunRecording(task, subject, self.folder / "runs", figures)
        follower = RunFollower(task, replica, lambda _: replica, recording, lambda *_: None)
        if log is None:
            specs = sum_specs(plan, binding.layout, binding.schema)
            return PlainWorker(task, specs, record.admit, follower, record.close)
        member = plan.federation.collaborators.index(self.name) + 1
        agreed, shapes = session_plan(plan, binding.digest), sum_shapes(plan, binding.layout, binding.schema)
        policy = masking_policy(plan, POLICY)
        site = SessionSite(member, roster_of(plan), signing_key(self.name), agreed, policy, shapes)
        parts, totals = header_parts(plan, binding.schema), MaskedTotals(plan, binding.layout, binding.schema)
        return MaskedWorker(task, parts, totals, record.admit, site, log, follower, record.close)

    # -------------------------------------------------------------- one stream

    def connect(self) -> None:
        """Open a stream; an older one is gone with everything that was on it."""
        self.forget()
        held, asked = self.worker.held, self.worker.sums.last_asked
        seen = Seen() if asked is None else Seen(asked[1].sum_number, held.run_id, int(held.rounds_done))
        state = held.digest if held.run_id == RUN_ID else b""
        self.play.wait(self.worker.join(self.play.welcome()))
        self.connected = True
        self.play.tell(events.Connected(self.name, self.worker.session, seen, state))

    def forget(self) -> None:
        """Lose what is on its way, in both directions."""
        self.network.clear()
        self.said.clear()
        self.mailbox = Mailbox()

    def awaits(self, kind: Kind) -> bool:
        """Return whether a message of this kind has not been worked on."""
        entries = (*self.network, *self.mailbox._entries)
        return any(isinstance(entry, SecaggMessage) and kind_of(entry.message) is kind for entry in entries)

    @property
    def may_listen(self) -> bool:
        """Return whether something has come that the mailbox takes now."""
        if not self.network or len(self.mailbox) >= MAX_WAITING:
            return False
        moves = isinstance(self.network[0], ReceivedSum | ReceivedState | ReceivedTotals)
        return not (moves and self.mailbox._moving >= MAX_SUMS)

    def listen(self) -> None:
        """Put what came first into the mailbox."""
        said = self.network.popleft()
        if isinstance(said, ReceivedRequest):
            self.worker.sums.expect(said)
        self.play.wait(self.mailbox.put(said))

    def work(self) -> None:
        """Take one entry of the mailbox; what there is to say to it is on its way."""
        said, before = self.play.wait(self.mailbox.take()), self.digest
        frames = list(self.play.wait(self.worker.frames(said)))
        if isinstance(said, ReceivedSum | ReceivedTotals) and self.digest != before:
            self.play.followed(before, self.digest)
        elif self.digest != before:
            self.play.known(self.digest)
        self.said += self._events(frames)

    def _events(self, frames: list[CollaboratorFrame]) -> Iterable[events.Event]:
        while frames:
            frame, vector = frames.pop(0), b""
            while frames and isinstance(frames[0], Chunk):
                vector += bytes(frames.pop(0).data)  # type: ignore[union-attr]
            match frame:
                case SecaggMessage(message):
                    if kind_of(message) is Kind.UPLOAD:
                        self._adds()
                    yield events.MessageArrived(self.name, message, vector)
                case UploadStart(number):
                    self._adds()
                    yield events.UploadArrived(self.name, number, vector)
                case Abstain(number, reason, leaving, accused):
                    if self.play.is_honest and (leaving or accused):
                        raise AssertionError(f"{self.name}: {self.worker.sums.refused}")
                    self.play.counts.happened[f"abstained: {reason.value}"] += 1
                    yield events.Abstained(self.name, number, reason.value, leaving, accused)

    def _adds(self) -> None:
        """Refuse where it adds to a sum about another state than its own."""
        assert self.worker.sums.last_asked[1].state == self.digest
        self.play.counts.happened["uploads"] += 1


class ReplayedPlay:
    """A federation of real sites; nothing happens but by its methods.

    Args:
        plan: the plan.
        folder: an empty one.
        records: of all sites; None for those that the plan names.
    """

    def __init__(self, plan: Plan, folder: Path, records: Mapping[ParticipantId, Splits] | None = None) -> None:
        self.plan, self.folder = plan, folder
        self._runner = asyncio.Runner()
        self.binding = plan_binding(plan, folder)
        self.records = load_federation(plan, folder) if records is None else records
        self.counts = Counts()
        self.is_honest = True  # then nobody is ever blamed, and nobody leaves
        self.deadlines: dict[events.DeadlineToken, int] = {}
        self.seconds = 2e9
        self.breaks = "never"  # when the aggregator is killed in `tell`: "before writing" or "amid sending"
        self.random = random.Random(0)  # noqa: S311 - nothing here is a secret
        self.states: set[bytes] = set()  # digests of all states that the aggregator has had
        self.after: dict[bytes, bytes] = {}  # from the state that a sum was about to the one that it led to
        self.sites = {name: Site(self, name) for name in map(ParticipantId, NAMES)}
        self.outcome: events.Finish | None = None
        self._start()

    def wait(self, coroutine: Coroutine[None, None, _Result]) -> _Result:
        """Return what a coroutine returns."""
        return self._runner.run(coroutine)

    def close(self) -> None:
        """End every process."""
        for site in self.sites.values():
            site.close()
        self.journal.close()
        self._runner.close()

    def welcome(self) -> Welcome:
        """Return the first frame of every stream."""
        return Welcome(RUN_ID, self.training_run.rounds_done, self.plan.training.rounds)

    # -------------------------------------------------------------- the aggregator's processes

    def _start(self) -> None:
        """Start a process of the aggregator, as `aggregator.preparation` does it."""
        plan, binding = self.plan, self.binding
        self.seconds += 1.0
        self.journal = Journal.open(self.folder / "journal.sqlite", binding.digest, RUN_ID, self.seconds)
        self.training_run = TrainingRun(plan, binding.layout, binding.schema, binding.vector)
        run, masked = self.training_run, is_masked(plan)
        first = run.next_sum()
        unfinished, opened = _resume(run, self.journal, binding.digest, lambda _: None, masked=masked)
        due = run.next_sum()
        continues, protection = (first and first.place) != (due and due.place), None
        if masked:
            about = (plan, binding.digest, binding.layout, binding.schema)
            protection = SecaggSession(*about, self.random.randbytes, lambda: self.seconds)
        self.federation = Federation(
            plan,
            run,
            PlainSum,
            binding.digest,
            protection=protection,
            last_sum_number=self.journal.last_sum_number,
            continued=Continued(RUN_ID, run.rounds_done, 1, 2) if continues else None,
            unfinished=unfinished,
            opened=opened,
        )
        self.deadlines.clear()
        for site in self.sites.values():
            site.connected = False
            site.forget()
        self._note_state()
        self.tell(events.Started())

    def restart(self) -> None:
        """Kill the aggregator and start it again from its journal."""
        self.counts.happened["restarts of the aggregator"] += 1
        self.breaks = "never"
        self.journal.close()
        self._start()

    @property
    def digest(self) -> bytes:
        """Return the digest of the aggregator's state."""
        return self.training_run.state.digest(self.binding.digest)

    def tell(self, event: events.Event) -> None:
        """Let something happen, and carry out what follows in the driver's order: write, then send."""
        before, effects = self.digest, self.federation.receive(event)
        breaks, self.breaks = self.breaks, "never"
        if breaks == "before writing":
            self.restart()
            return
        self._write(effects)
        if any(isinstance(effect, events.Report) for effect in effects):
            self._summed(before)
        self._note_state()
        stop = self.random.randrange(len(effects) + 1) if breaks == "amid sending" else len(effects)
        for effect in effects[:stop]:
            self._carry_out(effect)
        if breaks == "amid sending" or self.federation.phase is Phase.ABORTED:
            if self.federation.phase is Phase.ABORTED:
                self.counts.happened["runs that the operator took up again"] += 1
            self.restart()

    def _write(self, effects: list[events.Effect]) -> None:
        ends = any(isinstance(effect, events.Finish | events.Abort) for effect in effects)
        if ends or any(isinstance(effect, events.MOVES_STATE) for effect in effects):
            entry = JournalEntry(self.training_run.snapshot(), 0.0, opened=self.federation.steps.last)
            self.journal.record(entry)
        kept = [effect.unfinished for effect in effects if isinstance(effect, events.SaveUnfinished)]
        if kept:
            self.journal.keep(kept[-1])

    def _carry_out(self, effect: events.Effect) -> None:
        match effect:
            case events.SendState(name):
                self.counts.happened["states sent"] += 1
                packed = b"".join(map(bytes, pack_state(self.training_run.state)))
                self._send(name, ReceivedState(memoryview(packed)))
            case events.SendTotals(name, totals):
                self._send(name, ReceivedTotals(memoryview(totals)))
            case events.SendSum(name, number, request, state, seconds):
                asked = (request.purpose, int(request.round), request.attempt, state, seconds)
                self._send(name, ReceivedRequest(SumStart(number, *asked), RUN_ID))
            case events.SendMessage(name, message, vector):
                opened = kind_of(message) is Kind.OPENED
                self._send(name, ReceivedSum(message, vector) if opened else SecaggMessage(message))
            case events.SetDeadline(token, seconds):
                self.deadlines[token] = seconds
            case events.CancelDeadline(token):
                self.deadlines.pop(token, None)
            case events.Refuse() | events.Departed() | events.Suspected() if self.is_honest:
                raise AssertionError(f"an honest site is blamed or leaves: {effect}")
            case events.SumLost() | events.Skipped():
                self.counts.happened[type(effect).__name__] += 1
            case events.Finish():
                self.outcome = effect

    def _send(self, name: ParticipantId, said: ForWorker) -> None:
        if self.sites[name].connected:
            self.sites[name].network.append(said)

    def pass_deadline(self, token: events.DeadlineToken) -> None:
        """Let a deadline pass."""
        del self.deadlines[token]
        self.tell(events.DeadlinePassed(token))

    # -------------------------------------------------------------- what must be the same

    def _note_state(self) -> None:
        self.states.add(self.digest)

    def _summed(self, before: bytes) -> None:
        """Hold every site's copy against the aggregator's states, after a sum."""
        self.counts.sums += 1
        after = self.federation.steps._after_last  # what follows may have moved the state on
        assert self.after.setdefault(before, after) == after
        self.states.add(after)
        for site in self.sites.values():
            self.known(site.digest)

    def known(self, digest: bytes) -> None:
        """Refuse a site's state that the aggregator has never had."""
        self.counts.digests += 1
        assert digest in self.states

    def followed(self, before: bytes, after: bytes) -> None:
        """Refuse where a sum has led a site elsewhere than the aggregator."""
        self.counts.digests += 1
        assert self.after[before] == after
