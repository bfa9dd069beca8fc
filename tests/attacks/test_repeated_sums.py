"""What a site adds to an evaluation never changes, so it may be summed again only where nothing can be learnt."""

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, ServerEffect
from fedfair.secagg.history import Exposure, History, set_digest
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import SecaggPolicy
from fedfair.secagg.round_messages import UnmaskShares
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server import Server
from fedfair.secagg.transcript import RoundSubject
from tests.attacks.harness import Lies, check_of, refused
from tests.secagg.federation_in_memory import unit_update

RECORDS = {index: Update(np.array([2.0**index, 1.0]), np.zeros(0), 1) for index in range(1, 6)}
"""The header's first value tells who is in a sum: 2^i for member i."""


def evaluation(
    lies: Lies, cohort: Iterable[int], silent: Iterable[tuple[int, Kind]] = (), *, unanimous: bool = True
) -> int | None:
    """Ask `cohort` for its evaluation; return the sum of 2^i over whoever is in it, None where it was lost."""
    chosen = sorted(cohort)
    lies.updates, lies.opened, lies.aborted, lies.silent = dict(RECORDS), None, None, set(silent)
    lies.deliver(lies.server.start_round("evaluation", lies.model, (), chosen, unanimous=unanimous))
    while lies.opened is None and lies.aborted is None:
        lies.deliver(lies.server.deadline())
    return None if lies.opened is None else round(float(lies.opened.header[0]))


def of(*members: int) -> int:
    return sum(2**index for index in members)


def test_an_evaluation_that_lost_a_site_before_anybody_answered_is_repeated_without_it() -> None:
    lies = Lies.in_session()
    lies.sites = {index: lies.sites[index] for index in lies.roster.indices}
    assert evaluation(lies, range(1, 6), [(5, Kind.UPLOAD)]) is None
    assert (lies.aborted.answered, lies.aborted.missing) == (False, (5,))
    assert evaluation(lies, range(1, 5)) == of(1, 2, 3, 4)


def test_an_evaluation_that_some_have_answered_is_repeated_for_the_same_sites_only() -> None:
    lies = Lies.in_session()
    assert evaluation(lies, range(1, 6), [(5, Kind.UNMASK_SHARES)]) is None
    assert lies.aborted.answered
    assert check_of(evaluation, lies, range(1, 5)) is Check.REUSED_UPDATE
    lies.server.deadline()
    assert evaluation(lies, range(1, 6)) == of(1, 2, 3, 4, 5)
    assert evaluation(lies, range(1, 6)) == of(1, 2, 3, 4, 5), "the very same sum tells nothing new"


def test_an_aggregator_that_lowers_the_threshold_of_a_repetition_is_refused() -> None:
    lies = Lies.in_session()
    assert evaluation(lies, range(1, 6), [(5, Kind.UPLOAD)]) is None
    assert check_of(evaluation, lies, range(1, 5), unanimous=False) is Check.REUSED_UPDATE


def test_what_t_others_could_open_is_never_sent_again() -> None:
    lies = Lies.in_session()
    assert evaluation(lies, range(1, 6), [(i, Kind.UPLOAD) for i in (3, 4, 5)], unanimous=False) is None
    assert check_of(evaluation, lies, range(1, 6)) is Check.REUSED_UPDATE


def test_a_part_of_a_cohort_that_must_be_whole_is_not_opened() -> None:
    lies = Lies.in_session()
    lies.updates = dict(RECORDS)
    for effect in lies.server.start_round("evaluation", lies.model, (), lies.roster.indices, unanimous=True):
        lies.carry_out(effect.member, lies.hand_over(effect.member, effect.message))
    assert refused(lies.sites[1], lies.masks_request([1, 2, 3, 4])) is Check.SURVIVORS


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_whatever_is_asked_a_site_is_never_in_two_different_open_sums(data: st.DataObject) -> None:
    """Everything an aggregator can do with four sites and one evaluation: cohorts, thresholds, who is heard.

    The oracle knows nothing of rules: the sums that were opened are compared, and no two of them may hold one site
    next to different others.
    """
    lies = Lies.in_session(4)
    opened: set[tuple[int, ...]] = set()
    for _ in range(data.draw(st.integers(2, 4))):
        cohort = data.draw(st.sets(st.integers(1, 4), min_size=2))
        kinds = st.sampled_from([Kind.UPLOAD, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES])
        silent = data.draw(st.sets(st.tuples(st.integers(1, 4), kinds), max_size=2))
        for index in data.draw(st.sets(st.integers(1, 4), max_size=1)):
            lies.restart(index)
        lies.set_up()
        try:
            found = evaluation(lies, cohort, silent, unanimous=data.draw(st.booleans()))
        except SecaggError:
            continue
        if found is not None:
            opened.add(tuple(index for index in range(1, 5) if found >> index & 1))
    for one in opened:
        for other in opened - {one}:
            assert not set(one) & set(other)


def test_an_exposure_only_ever_narrows() -> None:
    history = History({})

    def exposure() -> Exposure:
        found = history.exposure(b"x")
        assert found is not None
        return found

    history.sent(b"x", whole=True)
    assert exposure().allows((1, 2))
    history.answered(b"x", b"s", (1, 2))
    assert exposure() == Exposure(whole=True, answered=set_digest((1, 2)))
    assert exposure().allows((1, 2))
    assert not exposure().allows((1, 2, 3))
    history.sent(b"x", whole=False)
    history.sent(b"x", whole=True)
    assert not exposure().allows((1, 2))


def test_the_bytes_of_a_repetition_are_new() -> None:
    lies = Lies.in_session()
    assert evaluation(lies, range(1, 6), [(5, Kind.UPLOAD)]) is None
    first: dict[int, Send] = dict(lies.uploads)
    assert evaluation(lies, range(1, 6)) == of(1, 2, 3, 4, 5)
    assert all(lies.uploads[index].vector != send.vector for index, send in first.items())


# ---------------------------------------------------------------- whatever the update is, one sum has one set

ONE_COHORT = SecaggPolicy(greatest_attempts=1_000_000)


def training(lies: Lies, cohort: Iterable[int], silent: Iterable[tuple[int, Kind]] = ()) -> tuple[int, ...] | None:
    """Ask `cohort` for fresh updates to the very same sum; return over whom it was opened."""
    chosen = sorted(cohort)
    lies.updates, lies.opened, lies.aborted, lies.silent = lies.fresh_updates(), None, None, set(silent)
    lies.deliver(lies.server.start_round("training", lies.model, (1.0,), chosen))
    while lies.opened is None and lies.aborted is None:
        lies.deliver(lies.server.deadline())
    return None if lies.opened is None else lies.opened.survivors


def test_a_sum_that_was_opened_is_not_opened_for_other_sites_whatever_they_add() -> None:
    lies = Lies.in_session(policy=ONE_COHORT)
    assert training(lies, range(1, 6)) == (1, 2, 3, 4, 5)
    for index in lies.roster.indices:
        lies.restart(index)
    lies.set_up()
    lies.server.round += 1
    assert refused(lies.sites[1], lies.start(cohort=(1, 2, 3, 4), threshold=3)) is Check.COHORT
    lies.server.round -= 1
    assert training(lies, range(1, 6)) == (1, 2, 3, 4, 5), "the very same sites may repeat it"


def test_the_next_sum_may_have_other_sites() -> None:
    lies = Lies.in_session(policy=ONE_COHORT)
    assert training(lies, range(1, 6)) == (1, 2, 3, 4, 5)
    lies.model = RoundSubject(lies.model.state_digest, b"n" * 32)
    assert training(lies, range(1, 5)) == (1, 2, 3, 4)


def test_a_sum_that_nobody_helped_to_open_may_have_other_sites() -> None:
    lies = Lies.in_session(policy=ONE_COHORT)
    assert training(lies, range(1, 6), [(i, Kind.UPLOAD) for i in (3, 4, 5)]) is None
    assert training(lies, range(1, 5)) == (1, 2, 3, 4)


def test_the_same_cohort_is_not_opened_for_a_part_of_it_afterwards() -> None:
    lies = Lies.in_session(policy=ONE_COHORT)
    assert training(lies, range(1, 6)) == (1, 2, 3, 4, 5)
    lies.collect(lies.fresh_updates(), without=(5,))
    assert refused(lies.sites[1], lies.masks_request((1, 2, 3, 4))) is Check.COHORT
    assert refused(lies.sites[1], lies.request(1, (1, 2, 3, 4))) is Check.COHORT


def test_a_site_killed_between_its_upload_and_its_vote_still_knows_for_whom_the_sum_was_opened() -> None:
    lies = Lies.in_session(policy=ONE_COHORT)
    assert training(lies, range(1, 6)) == (1, 2, 3, 4, 5)
    lies.collect(lies.fresh_updates(), without=(5,))
    lies.restart(1)
    assert refused(lies.sites[1], lies.masks_request((1, 2, 3, 4))) is Check.COHORT


def test_a_site_that_allows_it_opens_a_sum_for_other_sites_too() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(greatest_attempts=9, any_cohort=frozenset({"training"})))
    assert (training(lies, range(1, 6)), training(lies, range(1, 5))) == ((1, 2, 3, 4, 5), (1, 2, 3, 4))


def test_a_site_opens_as_many_sums_for_a_second_set_of_sites_as_its_policy_allows() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(greatest_attempts=9, max_reopened_sums=1))
    assert (training(lies, range(1, 6)), training(lies, range(1, 5))) == ((1, 2, 3, 4, 5), (1, 2, 3, 4))
    assert training(lies, range(1, 5)) == (1, 2, 3, 4), "the same set again is no other one"
    for index in lies.roster.indices:
        lies.restart(index)
    lies.set_up()
    with pytest.raises(SecaggError) as refusal:
        training(lies, (1, 2, 3, 5))
    assert refusal.value.check is Check.COHORT
    assert "policy.max_reopened_sums: 2" in refusal.value.remedy


def test_an_evaluation_is_opened_for_other_sites_only_as_often_as_the_policy_allows() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(greatest_attempts=9, max_reopened_sums=1))
    assert evaluation(lies, range(1, 6)) == of(1, 2, 3, 4, 5)
    assert evaluation(lies, range(1, 5)) == of(1, 2, 3, 4)
    assert check_of(evaluation, lies, (1, 2, 3, 5)) is Check.COHORT


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_no_site_ever_helps_to_open_one_sum_for_two_sets(data: st.DataObject) -> None:
    """The oracle reads answers: over a whole play, every site's answers to one sum name one set of sites."""
    lies = Lies.in_session(4, policy=ONE_COHORT)
    answers: dict[int, set[tuple[int, ...]]] = {index: set() for index in range(1, 5)}
    to_server = lies.to_server

    def overheard(member: int, send: Send) -> list[ServerEffect]:
        if kind_of(send.message) is Kind.UNMASK_SHARES:
            answers[member].add(UnmaskShares.decode(send.message).survivors)
        return to_server(member, send)

    lies.to_server = overheard  # type: ignore[method-assign]  # a wire that is listened to
    for _ in range(data.draw(st.integers(2, 4))):
        cohort = data.draw(st.sets(st.integers(1, 4), min_size=2))
        kinds = st.sampled_from([Kind.UPLOAD, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES])
        silent = data.draw(st.sets(st.tuples(st.integers(1, 4), kinds), max_size=2))
        for index in data.draw(st.sets(st.integers(1, 4), max_size=1)):
            lies.restart(index)
        lies.set_up()
        with contextlib.suppress(SecaggError):
            training(lies, cohort, silent)
    assert all(len(found) <= 1 for found in answers.values())


def test_an_evaluation_of_a_model_that_differs_in_the_last_bit_is_opened_for_no_other_sites() -> None:
    # Its update is another one, so nothing but the memory of whom this sum was opened for can refuse it.
    lies = Lies.in_session(policy=ONE_COHORT)
    assert evaluation(lies, range(1, 6)) == of(1, 2, 3, 4, 5)
    lies.model = RoundSubject(b"j" * 32, lies.model.request_digest)
    assert check_of(evaluation, lies, range(1, 5)) is Check.COHORT


# ---- an interrupted round is opened from what the sites have sent, for one set of survivors, whatever is asked


class Restarted(Lies):
    """A federation whose aggregator may be another process at any moment; sites refuse what they must."""

    def __init__(self, members: int = 4) -> None:
        super().__init__(members)
        self.said: dict[tuple[int, Kind, bytes], set[bytes]] = defaultdict(set)

    def new_process(self) -> None:
        """Forget everything that the aggregator knew but the record of its round."""
        self.server = Server(
            self.roster, self.plan, self.shapes, self.randomness, np.dtype(self.dtype), self.threads
        )

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        kind = kind_of(send.message)
        if kind in (Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES):
            said = hashlib.sha256(send.message + bytes(send.vector)).digest()
            self.said[member, kind, send.message[2:34]].add(said)
        try:
            return super().to_server(member, send)
        except SecaggError:
            return []

    def deliver(self, effects: list[ServerEffect]) -> None:
        for effect in effects:
            try:
                super().deliver([effect])
            except SecaggError:
                continue

    def to_the_end(self, effects: list[ServerEffect]) -> tuple[int, ...]:
        """Return whose unit vectors are in the sum that was opened; nobody's where it was lost."""
        self.opened, self.aborted = None, None
        self.deliver(effects)
        while self.opened is None and self.aborted is None:
            self.deliver(self.server.deadline())
        if self.opened is None:
            return ()
        return tuple(int(index) + 1 for index in np.flatnonzero(np.rint(self.opened.body)))


def known(lies: Lies) -> RoundRecord:
    return RoundRecord.decode(lies.server.round_record.encode())


@pytest.mark.parametrize(
    "lost", [(Kind.UPLOAD, 4), (Kind.PAIR_MASKS, 3), (Kind.UNMASK_SHARES, 2), (Kind.CONSISTENCY_CHECK, 3)], ids=str
)
@pytest.mark.parametrize("sites_too", [False, True])
def test_a_round_lost_at_any_step_is_opened_by_a_new_process_alike(
    lost: tuple[Kind, int], sites_too: bool
) -> None:
    lies = Restarted()
    lies.set_up()
    lies.updates = {index: unit_update(index, 4) for index in range(1, 5)}
    kind, sites = lost
    lies.silent = {(4, Kind.UPLOAD)} | {(index, kind) for index in range(1, 1 + sites)}
    assert lies.to_the_end(lies.server.start_round("training", lies.model, (1.0,), (1, 2, 3, 4))) == ()
    record = known(lies)
    lies.silent = {(4, Kind.UPLOAD)}
    lies.new_process()
    if sites_too:
        for index in range(1, 5):
            lies.restart(index)
    assert lies.to_the_end(lies.server.reopen(record)) == (1, 2, 3)
    first = lies.opened.body.tobytes()
    lies.new_process()
    assert lies.to_the_end(lies.server.reopen(known(lies) if lies.server.round_record else record)) == (1, 2, 3)
    assert lies.opened.body.tobytes() == first
    assert all(len(said) == 1 for said in lies.said.values())


def test_a_record_outlives_its_bytes_and_a_damaged_one_is_refused() -> None:
    lies = Restarted()
    lies.set_up()
    lies.server.start_round("training", lies.model, (1.0,), (1, 2, 3, 4))
    record = replace(known(lies), survivors=(1, 2, 3), votes=((1, bytes(64)), (3, bytes(64))))
    kept = RoundRecord.decode(record.encode())
    assert (kept.encode(), kept.survivors, kept.votes) == (record.encode(), record.survivors, record.votes)
    assert len(record.encode()) < 600
    with pytest.raises(LocalProtocolError, match="record of an interrupted round is damaged"):
        RoundRecord.decode(record.encode()[:-1])


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_however_often_a_round_is_opened_again_nobody_is_in_two_open_sums(data: st.DataObject) -> None:
    """A lying aggregator reopens rounds with survivors of its own choice, as any process, while sites restart.

    The oracle knows no rules: of all sums that were opened from one round, no two hold different sites; and no
    site ever says two things of one kind in one round.
    """
    lies = Restarted()
    lies.set_up()
    lies.updates = {index: unit_update(index, 4) for index in range(1, 5)}
    kinds = st.sampled_from([Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES])
    lies.silent = data.draw(st.sets(st.tuples(st.integers(1, 4), kinds), max_size=4))
    opened = {lies.to_the_end(lies.server.start_round("training", lies.model, (1.0,), (1, 2, 3, 4)))}
    for _ in range(data.draw(st.integers(1, 4))):
        record = known(lies)
        if data.draw(st.booleans()):
            chosen = tuple(sorted(data.draw(st.sets(st.integers(1, 4), max_size=4))))
            record = replace(record, survivors=chosen, votes=record.votes if data.draw(st.booleans()) else ())
        if data.draw(st.booleans()):
            lies.new_process()
        for index in data.draw(st.sets(st.integers(1, 4), max_size=4)):
            lies.restart(index)
        lies.silent = data.draw(st.sets(st.tuples(st.integers(1, 4), kinds), max_size=3))
        opened.add(lies.to_the_end(lies.server.reopen(record)))
    assert len(opened - {()}) <= 1
    assert all(len(said) == 1 for said in lies.said.values())
