"""What sites sign at an aggregator: taken where honest, kept and told where it differs, refused where it lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator.admission import Admission
from aggregator.transcript import RunTranscript
from collaborator.witnessing import SiteWitness
from fedfair.errors import AuditError, RemoteProtocolError
from fedfair.ids import ParticipantId
from fedfair.news.event import StatusUpdate
from fedfair.news.run import StatementDiffers
from fedfair.plan.schema import Plan
from fedfair.run.state import RunState
from fedfair.transcript.evidence import read_evidence
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.statement import (
    Release,
    ReleaseReason,
    ReleaseVerdict,
    StatementKind,
    parse_statement,
    sign_statement,
    verify_statement,
)
from tests.transcript.played import APPROVALS, FEDERATION, KEYS, PLAN_DIGEST, RUN, SITES, Play, plan_of, signatory

A, B = SITES
PUBLIC = {name: key.public_key() for name, key in KEYS.items()}


class Federation:
    """An aggregator's evidence, and what its sites sign, of one run."""

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self.folder, self.news = folder, list[StatusUpdate]()
        plan = plan or plan_of()
        self.lead = Play(plan)
        self.sites = {name: Play(plan) for name in SITES}
        self.witnesses = {name: SiteWitness(signatory(name), plan, folder / name) for name in SITES}
        (folder / "save").mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start the aggregator, or start it again."""
        admission = Admission(FEDERATION, PLAN_DIGEST, PUBLIC, self.folder)
        place = (self.folder / "save", RUN, self.lead.plan, self.lead.run, admission)
        self.transcript = RunTranscript(*place, self.news.append)
        for name in SITES:
            self.transcript.approved(name, APPROVALS[name])

    def sum(self, scale: float = 1.0, **other: float) -> bool:
        """Make one sum; `other` says what a site is shown in place of its total."""
        progress = self.lead.sum(scale)
        if progress is None:
            return False
        self.transcript.added(progress)
        for name, play in self.sites.items():
            shown = play.sum(other.get(name.replace("-", "_"), scale))
            assert shown is not None
            self.witnesses[name].applied(play.replica, shown)
        return True

    def send(self) -> None:
        """Send what sites have signed at checkpoints."""
        for name, witness in self.witnesses.items():
            unsent = witness.unsent_of(self.sites[name].run.state)
            while unsent:
                self.transcript.witnessed(name, unsent.popleft())

    def finish(self) -> None:
        while self.sum():
            self.send()
        for name, witness in self.witnesses.items():
            witness.ended(self.sites[name].replica)
            self.transcript.ended(name, witness.last)
        self.transcript.close()

    @property
    def differences(self) -> list[tuple[str, str]]:
        return [(each.who, each.difference) for each in self.news if isinstance(each, StatementDiffers)]


def test_at_the_end_the_evidence_has_what_every_site_has_signed(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    run.finish()
    found = read_evidence(tmp_path / "save" / "transcript.json")
    leaves = Leaves(tmp_path / "save" / "leaves.bin")
    assert found.same_run == (FEDERATION, PLAN_DIGEST, RUN)
    assert found.present is not None
    assert (len(leaves.raw), leaves.hashes.root()) == (found.present.leaves, found.present.root)
    assert list(found.places) == [2, 5, 7]
    for name in SITES:
        said = verify_statement(found.statements[name].encode(), PUBLIC[name])
        assert (said.kind, said.same_state) == (StatementKind.FINAL, found.present.same_state)
        assert found.approvals[name].encode() == APPROVALS[name]
        # A site keeps the same, and what it has signed on the way.
        folder = tmp_path / name / RUN
        assert Leaves(folder / "leaves.bin").raw == leaves.raw
        kept = [parse_statement(line.encode()) for line in (folder / "statements.jsonl").read_text().splitlines()]
        assert [(each.leaves, each.kind.value) for each in kept] == [
            (2, "checkpoint"), (5, "checkpoint"), (7, "final"),
        ]  # fmt: skip
        assert all(each.same_state == found.places[each.leaves].same_state for each in kept)
    assert (found.differing, run.news) == ({}, [])


def test_of_a_site_that_is_gone_the_last_checkpoint_counts(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    for _ in range(4):
        run.sum()
    run.send()
    run.transcript.close()
    run.start()
    while run.sum():
        for name in SITES:
            run.witnesses[name].unsent_of(run.sites[name].run.state).clear()
    run.witnesses[A].ended(run.sites[A].replica)
    run.transcript.ended(A, run.witnesses[A].last)
    run.transcript.ended(B, b"")
    run.transcript.close()
    found = read_evidence(tmp_path / "save" / "transcript.json")
    told = {name: parse_statement(raw.encode()) for name, raw in found.statements.items()}
    assert {name: (said.kind.value, said.leaves) for name, said in told.items()} == {
        A: ("final", 7), B: ("checkpoint", 5),
    }  # fmt: skip


def test_a_killed_aggregator_continues_the_evidence_and_one_that_was_put_back_cuts_it(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    run.sum()
    run.sum()
    run.send()
    earlier = run.lead.run.state
    run.sum()
    run.sum()
    # Killed before it heard of the checkpoint: nothing was closed. The journal is of the second sum.
    run.lead.run.state = earlier
    for play in run.sites.values():
        play.replica.restore(RUN, earlier)
    run.start()
    run.finish()
    found = read_evidence(tmp_path / "save" / "transcript.json")
    assert found.present is not None
    assert len(Leaves(tmp_path / "save" / "leaves.bin").raw) == 7 == found.present.leaves
    assert not run.differences
    for name in SITES:
        assert parse_statement(found.statements[name].encode()).same_state == found.present.same_state


def test_a_new_run_in_the_same_place_has_evidence_of_its_own(tmp_path: Path) -> None:
    Federation(tmp_path).finish()
    run = Federation(tmp_path)
    run.transcript._evidence.run = "a" * 32
    run.lead.replica.run_id = "a" * 32
    run.sum()
    found = read_evidence(tmp_path / "save" / "transcript.json")
    assert (found.run, found.statements, list(found.places)) == ("a" * 32, {}, [2])
    assert len(Leaves(tmp_path / "save" / "leaves.bin").raw) == 2


# ------------------------------------------------------------------ who lies


def test_two_sites_that_were_shown_different_histories_sign_different_roots(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    run.sum()
    run.send()
    run.sum(clinic_b=1.5)  # type: ignore[arg-type]
    run.sum()
    run.sum()
    run.send()
    assert run.differences == [(B, "it states another root, state or model after 5 leaves")]
    run.finish()
    found = read_evidence(tmp_path / "save" / "transcript.json")
    assert found.differing.keys() == {B}
    mine, theirs = (parse_statement(raw.encode()) for raw in (found.statements[A], found.differing[B]))
    assert mine.leaves == theirs.leaves
    assert mine.root != theirs.root
    # The last word of clinic-b that agreed is kept too, and says how far the two histories were one.
    assert parse_statement(found.statements[B].encode()).leaves == 2


def lies(run: Federation) -> dict[str, tuple[Callable[[], bytes], str]]:
    play = run.sites[B]

    def said(**other: object) -> bytes:
        honest = parse_statement(signatory(B).statement(play.replica, StatementKind.CHECKPOINT))
        return sign_statement(replace(honest, **other), KEYS[B])  # type: ignore[arg-type]

    def unsigned() -> bytes:
        return sign_statement(parse_statement(said()), KEYS[A])

    return {
        "garbage": (lambda: b"garbage", "no statement of a site"),
        "signed by another": (unsigned, "was not signed with the key"),
        "of another run": (lambda: said(run="a" * 32), "of another run"),
        "of another plan": (lambda: said(plan_digest=bytes(32)), "of another run"),
        "in another name": (lambda: said(participant=A), "in another name"),
        "older": (lambda: said(leaves=2), "after one of 5"),
        "the same place, other words": (lambda: said(threshold=0.125), "after one of 5"),
        "the end too early": (lambda: said(kind=StatementKind.FINAL), "states final"),
        "no checkpoint": (lambda: said(leaves=6), "where the run has no checkpoint"),
        "ahead of the run": (lambda: said(leaves=8), "where the run has no checkpoint"),
    }


LIES = (
    "garbage", "signed by another", "of another run", "of another plan", "in another name", "older",
    "the same place, other words", "the end too early", "no checkpoint", "ahead of the run",
)  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_site_says_breaks_the_protocol_and_is_not_kept(tmp_path: Path, lie: str) -> None:
    run = Federation(tmp_path)
    for _ in range(4):
        run.sum()
    run.send()
    said, words = lies(run)[lie]
    raw = said()
    run.sum()
    before = dict(run.transcript._evidence.statements)
    with pytest.raises(RemoteProtocolError, match=words):
        run.transcript.witnessed(B, raw)
    assert run.transcript._evidence.statements == before
    assert not run.news
    # The same bytes again are what a lost connection leads to.
    run.transcript.witnessed(B, before[B].encode())


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"root": bytes(32)}, "another root, state or model after 7 leaves"),
        ({"state": bytes(32)}, "another root, state or model"),
        ({"model": bytes(32)}, "another root, state or model"),
        ({"threshold": 0.125}, "another root, state or model"),
        ({"approval": bytes(32)}, "another approval"),
        ({"leaves": 9}, "states 9 leaves, this side has 7"),
        ({"leaves": 5}, "the end after 5 of 7 leaves"),
    ],
)
def test_a_site_that_signs_another_end_is_named_and_its_statement_kept(
    tmp_path: Path, other: dict[str, object], words: str
) -> None:
    run = Federation(tmp_path)
    run.finish()
    honest = parse_statement(run.witnesses[B].last)
    raw = sign_statement(replace(honest, **other), KEYS[B])  # type: ignore[arg-type]
    del run.transcript._evidence.statements[B]
    run.transcript.ended(B, raw)
    ((who, difference),) = run.differences
    assert who == B
    assert words in difference
    found = read_evidence(tmp_path / "save" / "transcript.json")
    assert (found.differing, B in found.statements) == ({B: raw.decode()}, False)


def test_a_last_word_that_is_no_statement_is_told_and_nothing_else(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    run.finish()
    before = (tmp_path / "save" / "transcript.json").read_bytes()
    run.transcript.ended(B, b"garbage")
    # An older statement, of a site or of whoever has listened, replaces none.
    kept = (tmp_path / B / RUN / "statements.jsonl").read_bytes().splitlines()
    run.transcript.ended(B, kept[0])
    assert [who for who, _ in run.differences] == [B]
    assert (tmp_path / "save" / "transcript.json").read_bytes() == before


def test_the_word_of_a_site_on_the_release_is_in_its_last_statement_alone(tmp_path: Path) -> None:
    plan, asked = plan_of(), list[RunState]()
    withheld = ReleaseVerdict(Release.WITHHELD, (ReleaseReason.EPSILON_LOWER_BOUND,))

    def verdict(state: RunState) -> ReleaseVerdict:
        asked.append(state)
        return withheld

    run = Federation(tmp_path, plan)
    run.witnesses[B] = SiteWitness(signatory(B), plan, tmp_path / B, verdict)
    run.finish()
    assert asked == [run.sites[B].run.state]
    found = read_evidence(tmp_path / "save" / "transcript.json")
    assert {name: parse_statement(raw.encode()).verdict for name, raw in found.statements.items()} == {
        A: ReleaseVerdict(), B: withheld,
    }  # fmt: skip


@pytest.mark.parametrize("change", [b"{}", b"[]", b"", b"\xff", b'{"format": "fedfair/transcript/2"}', b"cut"])
def test_evidence_that_cannot_be_read_is_named(tmp_path: Path, change: bytes) -> None:
    run = Federation(tmp_path)
    run.finish()
    path = tmp_path / "save" / "transcript.json"
    path.write_bytes(path.read_bytes()[:-9] if change == b"cut" else change)
    with pytest.raises(AuditError, match=r"transcript\.json"):
        read_evidence(path)
    with pytest.raises(AuditError, match=r"transcript\.json"):
        read_evidence(tmp_path / "no" / "transcript.json")


def test_what_a_site_cannot_write_is_told_to_its_operator(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    (tmp_path / A).write_text("a file in the place of the folder")
    run.finish()
    told = [type(each).__name__ for each in run.witnesses[A].take_notices()]
    assert set(told) == {"RunFileUnwritten"}
    assert run.witnesses[A].take_notices() == []
    found = json.loads((tmp_path / "save" / "transcript.json").read_text())
    assert ParticipantId("clinic-a") in found["statements"]
