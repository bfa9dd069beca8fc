"""Killed at any instant and restarted from its log, a site never says two things about one round."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import ConsistencyChecked, MasksWrapped, SharesRevealed, Uploaded
from fedfair.secagg.effects import Log, Remember, ReplaceLog, Send, SiteEffect
from fedfair.secagg.history import MASKS_KEY, MAX_PENDING_ROWS, Exposure, History, fingerprint, set_digest
from fedfair.secagg.log import entries, history_record, read_history
from fedfair.secagg.messages import Kind
from fedfair.secagg.participant import Participant
from tests.attacks.harness import Lies, check_of, refused
from tests.secagg.federation_in_memory import Wire, draws_of, shape_of, terms_of, unit_update


class Crashing(Wire):
    """A federation in which site 1 is killed and restarted in the middle of carrying out its effects.

    `crash_at` counts the effects of site 1 that are carried out before it dies; the log keeps what was logged, and
    a half-written record where it dies during a Log.
    """

    crash_at = -1
    torn = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.done = 0
        self.sent: dict[tuple[bytes, Kind], set[bytes]] = {}

    def carry_out(self, member: int, effects: list[SiteEffect]) -> list[Send]:
        if member != 1:
            return super().carry_out(member, effects)
        sends = []
        for effect in effects:
            if self.done == self.crash_at:
                if self.torn and isinstance(effect, Log):
                    self.logs[1] += b"".join(effect.parts)[:-1]
                self.crash_at = -1
                self.restart(1)
                return []
            self.done += 1
            for send in super().carry_out(member, [effect]):
                phase = self.sites[1].phase
                if phase is not None and send.message[1] in (
                    Kind.UPLOAD,
                    Kind.PAIR_MASKS,
                    Kind.CONSISTENCY_CHECK,
                    Kind.UNMASK_SHARES,
                ):
                    digest = hashlib.sha256(send.message + bytes(send.vector)).digest()
                    key = (phase.context.transcript if hasattr(phase, "context") else b"", Kind(send.message[1]))
                    self.sent.setdefault(key, set()).add(digest)
                sends.append(send)
        return sends

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        try:
            return super().hand_over(member, message)
        except SecaggError as refusal:
            assert member == 1
            # A site that has lost its session says so.
            assert refusal.check in (Check.SESSION, Check.OUT_OF_ORDER)  # noqa: PT017
            return []


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("crash_at", range(9))
def test_a_site_killed_at_any_effect_sends_no_two_things_and_rejoins(crash_at: int, torn: bool) -> None:
    wire = Crashing(4, terms_of(4), {"training": shape_of(4)})
    wire.set_up()
    wire.done, wire.crash_at, wire.torn = 0, crash_at, torn
    wire.updates = {m: unit_update(m, 4) for m in (1, 2, 3, 4)}
    wire.silent = {(4, Kind.UPLOAD)}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), (1, 2, 3, 4)))
    while wire.opened is None and wire.aborted is None:
        wire.deliver(wire.server.returned(1))  # it reconnects and is asked again, byte for byte
        wire.deliver(wire.server.deadline())
    assert wire.crash_at == -1  # it did crash
    assert all(len(found) == 1 for found in wire.sent.values())
    if wire.opened is not None:
        assert wire.opened.survivors in ((1, 2, 3), (2, 3))
    # It rejoins by the next session set-up, whatever happened.
    wire.silent = set()
    wire.set_up()
    assert wire.round({m: unit_update(m, 4) for m in (1, 2, 3, 4)}).survivors == (1, 2, 3, 4)


def _after(kind: Kind) -> Lies:
    """Return a federation in which site 1 has sent an upload, a vote or an answer, and was restarted."""
    lies = Lies.after_uploads(4)
    if kind is not Kind.UPLOAD:
        lies.carry_out(1, lies.sites[1].receive(lies.masks_request((1, 2, 3)), lies.model))
    if kind in (Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES):
        votes = {m: lies.vote_of(m, (1, 2, 3)) for m in (1, 2, 3)}
        for effect in lies.sites[1].receive(lies.survivors((1, 2, 3)), lies.model):
            assert isinstance(effect, Send)  # a resend
    if kind is Kind.UNMASK_SHARES:
        lies.carry_out(1, lies.sites[1].receive(lies.request(1, (1, 2, 3), votes), lies.model))
    return lies


def test_a_restarted_site_resends_its_upload_and_may_finish_the_round() -> None:
    lies = _after(Kind.UPLOAD)
    sent = lies.uploads[1]
    lies.restart(1)
    assert isinstance(lies.sites[1].phase, Uploaded)
    (resent,) = lies.sites[1].receive(lies.start(round=lies.server.round), lies.model)
    assert (resent.message, bytes(resent.vector)) == (sent.message, bytes(sent.vector))
    lies.answer(1, lies.request(1, lies.roster.indices))


def test_a_restarted_site_keeps_its_one_vote() -> None:
    lies = _after(Kind.PAIR_MASKS)
    (vote,) = lies.carry_out(1, lies.sites[1].receive(lies.survivors((1, 2, 3)), lies.model))
    lies.restart(1)
    assert isinstance(lies.sites[1].phase, ConsistencyChecked)
    assert refused(lies.sites[1], lies.survivors((1, 2, 4))) is Check.ONE_VOTE
    assert lies.sites[1].receive(lies.survivors((1, 2, 3)), lies.model) == [vote]


def test_a_restarted_site_repeats_the_masks_that_it_handed_over_and_may_hand_over_more() -> None:
    lies = Lies.after_uploads(5)
    lies.restart(1)
    (masks,) = lies.carry_out(1, lies.sites[1].receive(lies.masks_request((1, 2, 3, 4)), lies.model))
    lies.restart(1)
    assert isinstance(lies.sites[1].phase, MasksWrapped)
    assert lies.sites[1].receive(lies.masks_request((1, 2, 3, 4)), lies.model) == [masks]
    assert refused(lies.sites[1], lies.request(1, lies.roster.indices)) is Check.ONE_VOTE
    lies.masks_of(1, (1, 2, 3))
    lies.vote_of(1, (1, 2, 3))


@pytest.mark.parametrize("kind", [Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES])
def test_once_a_site_has_voted_or_answered_its_files_do_not_open_its_masks(kind: Kind) -> None:
    lies = Lies.after_uploads(4)
    kept = lies.logs[1]
    assert lies.remembered[1][MASKS_KEY] != bytes(64)
    if kind is Kind.CONSISTENCY_CHECK:
        lies.masks_of(1, (1, 2, 3))
        effects = lies.sites[1].receive(lies.survivors((1, 2, 3)), lies.model)
    else:
        effects = lies.sites[1].receive(lies.request(1, lies.roster.indices), lies.model)
    lies.carry_out(1, effects)
    assert lies.remembered[1][MASKS_KEY] == bytes(64)
    # The log as it was after the upload, found with the table of today.
    lies.logs[1] = kept
    lies.restart(1)
    assert lies.sites[1].phase.masks is None  # type: ignore[union-attr]
    assert refused(lies.sites[1], lies.masks_request((1, 2, 3))) is Check.SESSION


def test_a_restarted_site_keeps_its_one_answer_and_remembers_the_update() -> None:
    lies = Lies.after_uploads(4)
    update, request = lies.updates[1], lies.request(1, lies.roster.indices)
    (answer,) = lies.carry_out(1, lies.sites[1].receive(request, lies.model))
    lies.restart(1)
    site = lies.sites[1]
    assert isinstance(site.phase, SharesRevealed)
    assert site.receive(request, lies.model) == [answer]
    assert refused(site, lies.survivors((1, 2, 3))) is Check.ONE_ANSWER
    assert refused(site, lies.masks_request((1, 2, 3))) is Check.ONE_ANSWER
    lies.set_up()
    site.receive(lies.start(), lies.model)
    with pytest.raises(SecaggError, match="these very draws"):
        site.contribute(update, draws_of(update))


def test_a_restarted_site_never_continues_a_ratchet() -> None:
    lies = _after(Kind.UPLOAD)
    lies.restart(1)
    assert lies.sites[1].session is None
    assert refused(lies.sites[1], lies.start()) is Check.SESSION


def test_the_log_holds_no_chain_and_no_seed() -> None:
    lies = Lies.in_session(4)
    site = lies.sites[1]
    lies.updates = lies.fresh_updates()
    lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    site.receive(lies.start(), lies.model)
    phase = site.phase
    secrets_ = [seed.reveal() for seed in phase.seeds.values()]  # type: ignore[union-attr]
    secrets_ += [key.reveal() for key in phase.sending.values()]  # type: ignore[union-attr]
    secrets_ += [chain._key.reveal() for chain in site.session.chains.values()]  # type: ignore[union-attr]
    lies.carry_out(1, site.contribute(lies.updates[1], draws_of(lies.updates[1])))
    secrets_ += [mask.reveal() for mask in site.phase.masks.values()]  # type: ignore[union-attr]
    assert not any(secret in lies.logs[1] for secret in secrets_)


def test_a_torn_record_is_as_if_it_had_never_been_begun() -> None:
    lies = _after(Kind.UPLOAD)
    whole = lies.logs[1]
    upload_at = len(next(iter(_records(whole))))
    for size in range(upload_at, len(whole), 17):
        lies.logs[1] = whole[:size]
        lies.restart(1)
        assert lies.sites[1].phase is None
        assert refused(lies.sites[1], lies.request(1, lies.roster.indices)) is Check.OUT_OF_ORDER


def test_a_log_that_is_cut_in_its_first_record_is_refused_because_its_memory_is_lost() -> None:
    lies = _after(Kind.UPLOAD)
    whole = lies.logs[1]
    first = len(next(iter(_records(whole))))
    for size in range(1, first):
        lies.logs[1] = whole[:size]
        with pytest.raises(LocalProtocolError, match=f"ends in its first record, after {size} bytes") as refusal:
            lies.restart(1)
        assert "backup" in refusal.value.remedy


@pytest.mark.parametrize("kind", [Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES])
def test_every_flipped_bit_of_a_log_is_noticed(kind: Kind) -> None:
    whole = _after(kind).logs[1]
    assert b"".join(_records(whole)) == whole
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(LocalProtocolError, match="the write-ahead log is damaged at byte"):
            list(entries(bytes(damaged)))


def test_a_damaged_log_is_refused_with_a_remedy() -> None:
    lies = _after(Kind.UPLOAD)
    damaged = bytearray(lies.logs[1])
    damaged[60] ^= 1
    lies.logs[1] = bytes(damaged)
    with pytest.raises(LocalProtocolError) as refusal:
        lies.restart(1)
    assert "remove both" in refusal.value.remedy


def test_history_outlives_its_record() -> None:
    history = History({})
    history.entered("training", bytes(32))
    history.sent(bytes([1]) * 32, whole=True)
    history.sent(bytes([2]) * 32, whole=False)
    history.answered(bytes([2]) * 32, b"s" * 32, (1, 2, 5))
    (entry,) = entries(history_record(history))
    again = read_history(entry.fields, {})
    assert (again.pending, again.attempts("training", bytes(32))) == (history.pending, 1)
    assert again.opened_for(b"s" * 32) == set_digest((1, 2, 5))
    assert again.exposure(bytes([2]) * 32) == history.exposure(bytes([2]) * 32)


def test_a_log_is_written_before_anything_is_sent() -> None:
    lies = Lies.in_session(4)
    lies.updates = lies.fresh_updates()
    lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    first = lies.sites[1].receive(lies.start(), lies.model)
    assert [type(effect).__name__ for effect in first] == ["Contribute"]
    replaced, *_, sent = lies.sites[1].contribute(lies.updates[1], draws_of(lies.updates[1]))
    history, upload = entries(b"".join(replaced.parts))
    assert read_history(history.fields, {}).attempts("training", lies.model.state_digest) == 1
    assert sent.message in upload.fields
    assert upload.vector == sent.vector


def _records(log: bytes) -> list[bytes]:
    """Return the bytes of each record: 53 of frame, then the lengths that it declares."""
    found, at = [], 0
    while at < len(log):
        size = 53 + int.from_bytes(log[at + 1 : at + 5], "big") + int.from_bytes(log[at + 5 : at + 13], "big")
        found.append(log[at : at + size])
        at += size
    return found


# ---- a site forgets no question and no update of any age, and its latest round costs what its first one did


def number(value: int) -> bytes:
    return hashlib.sha256(b"%d" % value).digest()


def live_through(site: Participant, rounds: int) -> list[SiteEffect]:
    """Let a site remember that many rounds, each about a model and an update of its own; return what it writes."""
    written: list[SiteEffect] = []
    history = site._history
    for each in range(rounds):
        history.entered("training", number(each))
        history.sent(number(-each), whole=False)
        history.answered(number(-each), number(each), (1, 2, 3, 4))
        written += site._settle()
    return written


def test_an_update_of_five_thousand_rounds_ago_is_still_refused_after_a_restart() -> None:
    lies = Lies.after_uploads(4)
    update = lies.updates[1]
    lies.carry_out(1, lies.sites[1].receive(lies.request(1, lies.roster.indices), lies.model))
    lies.carry_out(1, live_through(lies.sites[1], 5000))
    lies.set_up()
    lies.restart(1)
    lies.set_up()
    lies.sites[1].receive(lies.start(), lies.model)
    assert check_of(lies.sites[1].contribute, update, draws_of(update)) is Check.REUSED_UPDATE


def test_attempts_at_a_model_of_five_thousand_rounds_ago_still_count_after_a_restart() -> None:
    lies = Lies.in_session(4)
    history = lies.sites[1]._history
    for _ in range(lies.policy.greatest_attempts):
        history.entered("training", lies.model.state_digest)
        if history.attempts("training", lies.model.state_digest) >= 3:
            break
    lies.policy = type(lies.policy)(greatest_attempts=3)
    lies.carry_out(1, live_through(lies.sites[1], 5000))
    lies.set_up()
    lies.restart(1)
    lies.set_up()
    assert refused(lies.sites[1], lies.start()) is Check.ATTEMPTS


def _written(effects: list[SiteEffect]) -> int:
    """Return how many bytes of memory, not of this round's upload, these effects write."""
    found = 0
    for effect in effects:
        if isinstance(effect, Remember):
            found += sum(len(key) + len(value) for key, value in effect.rows)
        elif isinstance(effect, ReplaceLog):
            found += len(effect.parts[0])
    return found


@pytest.mark.parametrize("rounds", [1, 100, 10_000])
def test_a_round_writes_no_more_after_many_rounds_than_after_few(rounds: int) -> None:
    lies = Lies.in_session(4)
    site = lies.sites[1]
    lies.carry_out(1, live_through(site, rounds))
    most = 100 * (MAX_PENDING_ROWS + 4)
    for _ in range(3):
        lies.updates = {m: unit_update(m, 4) for m in (1, 2, 3, 4)}
        lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
        site.receive(lies.start(round=lies.server.round), lies.model)
        effects = site.contribute(lies.updates[1], draws_of(lies.updates[1]))
        assert isinstance(effects[-1], Send)
        assert _written(effects) <= most
        assert len(site._history.pending) <= MAX_PENDING_ROWS + 4
        lies.carry_out(1, effects)
        lies.server.deadline()


@pytest.mark.parametrize("crash_at", [0, 1, 2])
def test_a_site_killed_while_it_settles_its_history_forgets_nothing(crash_at: int) -> None:
    lies = Lies.in_session(4)
    site = lies.sites[1]
    while not site._history.is_due:
        site._history.sent(number(len(site._history.pending)), whole=False)
    remembered = dict(site._history.pending)
    lies.carry_out(1, [ReplaceLog((history_record(site._history),))])
    lies.updates = {m: unit_update(m, 4) for m in (1, 2, 3, 4)}
    lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    site.receive(lies.start(round=lies.server.round), lies.model)
    effects = site.contribute(lies.updates[1], draws_of(lies.updates[1]))
    assert [type(effect).__name__ for effect in effects] == ["Remember", "ReplaceLog", "Remember", "Send"]
    lies.carry_out(1, effects[:crash_at])
    lies.restart(1)
    history = lies.sites[1]._history
    assert {key: history._get(key) for key in remembered} == remembered
    assert (lies.sites[1].phase is None) == (crash_at < 2)
    used = history.exposure(fingerprint("training", lies.model.state_digest, draws_of(lies.updates[1])))
    assert (used is None) == (crash_at < 2), "what the log says was sent is remembered, and nothing else"


def test_an_update_that_is_sent_while_its_row_is_settled_keeps_what_became_of_it() -> None:
    table: dict[bytes, bytes] = {}
    history, update = History(table), number(1)
    history.sent(update, whole=True)
    history.answered(update, number(2), (1, 2))
    rows = history.settle()
    history.sent(update, whole=True)
    table.update(rows)
    exposure = history.exposure(update)
    assert exposure == Exposure(whole=True, answered=set_digest((1, 2)))
    assert exposure is not None
    assert not exposure.allows((1, 2, 3))


def test_a_history_that_is_older_than_the_log_is_refused_with_a_remedy() -> None:
    lies = Lies.in_session(4)
    lies.carry_out(1, live_through(lies.sites[1], MAX_PENDING_ROWS))
    lies.set_up()
    lies.remembered[1] = {}
    with pytest.raises(LocalProtocolError, match="an older copy of the history was put back") as refusal:
        lies.restart(1)
    assert "one backup" in refusal.value.remedy


def test_a_log_that_is_lost_from_beside_its_history_is_refused_with_a_remedy() -> None:
    lies = Lies.after_uploads(4)
    lies.logs[1] = b""
    with pytest.raises(LocalProtocolError, match="is empty or missing") as refusal:
        lies.restart(1)
    assert "remove both" in refusal.value.remedy
    lies.remembered[1] = {}
    lies.restart(1)


def test_a_log_that_is_older_than_its_history_is_refused_with_a_remedy() -> None:
    lies = Lies.in_session(4)
    older = lies.logs[1]
    lies.carry_out(1, live_through(lies.sites[1], 2 * MAX_PENDING_ROWS))
    lies.set_up()
    lies.restart(1)
    lies.logs[1] = older
    with pytest.raises(LocalProtocolError, match="an older copy of the log was put back") as refusal:
        lies.restart(1)
    assert "one backup" in refusal.value.remedy


@pytest.mark.parametrize("carried_out", range(4))
def test_a_first_upload_that_dies_at_any_step_is_repeated_without_an_operator(carried_out: int) -> None:
    lies = Lies.in_session(4)
    lies.sites[1].receive(lies.start(), lies.model)
    update = unit_update(1, 4)
    effects = lies.sites[1].contribute(update, draws_of(update))
    assert [type(effect).__name__ for effect in effects] == ["ReplaceLog", "Remember", "Send"]
    lies.carry_out(1, effects[:carried_out])
    lies.restart(1)
    lies.set_up()
    assert lies.sites[1].session is not None


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_a_history_agrees_with_a_plain_dictionary_through_settlings_and_restarts(data: st.DataObject) -> None:
    table: dict[bytes, bytes] = {}
    history, attempts, exposures = History(table), dict[bytes, int](), dict[bytes, Exposure]()
    opened: dict[bytes, bytes] = {}
    for _ in range(data.draw(st.integers(0, 60))):
        which = number(data.draw(st.integers(0, 5)))
        match data.draw(st.sampled_from(["enter", "send", "answer", "settle", "restart"])):
            case "enter":
                history.entered("training", which)
                attempts[which] = attempts.get(which, 0) + 1
            case "send":
                whole = data.draw(st.booleans())
                history.sent(which, whole=whole)
                known = exposures.get(which, Exposure(whole=True))
                exposures[which] = Exposure(known.whole and whole, known.answered)
            case "answer":
                survivors = data.draw(st.sampled_from([(1, 2), (1, 3), (1, 2, 3)]))
                history.answered(which, which, survivors)
                opened[which] = set_digest(survivors)
                known = exposures.get(which, Exposure(whole=False))
                exposures[which] = Exposure(known.whole, set_digest(survivors))
            case "settle":
                # What is sent in the same step is noted before the driver has written the settled rows.
                rows, sends = history.settle(), data.draw(st.booleans())
                if sends:
                    history.sent(which, whole=False)
                    exposures[which] = Exposure(False, exposures.get(which, Exposure(whole=True)).answered)
                table.update(rows)
            case "restart":
                (entry,) = entries(history_record(history))
                history = read_history(entry.fields, table)
    for which in map(number, range(6)):
        assert history.attempts("training", which) == attempts.get(which, 0)
        assert (history.attempts("evaluation", which), history.exposure(which)) == (0, exposures.get(which))
        assert history.opened_for(which) == opened.get(which, b"")


def test_a_vote_and_an_answer_write_themselves_and_forget_the_key_of_the_masks() -> None:
    lies = Lies.after_uploads(4)
    (log, forget, send) = lies.sites[1].receive(lies.request(1, lies.roster.indices), lies.model)
    assert (type(log).__name__, forget) == ("Log", Remember(((MASKS_KEY, bytes(64)),)))
    assert send.message[1] == Kind.UNMASK_SHARES
