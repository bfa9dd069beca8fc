"""A site forgets no question and no update of any age, and its latest round costs what its first one did."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Remember, ReplaceLog, Send, SiteEffect
from fedfair.secagg.history import MASKS_KEY, MAX_PENDING_ROWS, Exposure, History, fingerprint, set_digest
from fedfair.secagg.log import entries, history_record, read_history
from fedfair.secagg.messages import Kind
from fedfair.secagg.participant import Participant
from tests.attacks.harness import Lies, refused
from tests.secagg.federation_in_memory import draws_of, unit_update


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
    with pytest.raises(SecaggError) as refusal:
        lies.sites[1].contribute(update, draws_of(update))
    assert refusal.value.check is Check.REUSED_UPDATE


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


@settings(deadline=None, max_examples=30)
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
                table.update(history.settle())
            case "restart":
                (entry,) = entries(history_record(history))
                history = read_history(entry.fields, table)
    for which in map(number, range(6)):
        assert history.attempts("training", which) == attempts.get(which, 0)
        assert history.attempts("evaluation", which) == 0
        assert history.exposure(which) == exposures.get(which)
        assert history.opened_for(which) == opened.get(which, b"")


def test_a_vote_and_an_answer_write_themselves_and_forget_the_key_of_the_masks() -> None:
    lies = Lies.after_uploads(4)
    (log, forget, send) = lies.sites[1].receive(lies.request(1, lies.roster.indices), lies.model)
    assert type(log).__name__ == "Log"
    assert forget == Remember(((MASKS_KEY, bytes(64)),))
    assert isinstance(send, Send)
    assert send.message[1] == Kind.UNMASK_SHARES
