"""An interrupted round is opened from what the sites have sent, for one set of survivors, whatever is asked."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.effects import Send, ServerEffect
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server import Server
from tests.attacks.harness import Lies
from tests.secagg.federation_in_memory import unit_update


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
    assert lies.server.round_record is not None
    return RoundRecord.decode(lies.server.round_record.encode())


@pytest.mark.parametrize(
    "lost",
    [(Kind.UPLOAD, 4), (Kind.PAIR_MASKS, 3), (Kind.UNMASK_SHARES, 2), (Kind.CONSISTENCY_CHECK, 3)],
    ids=str,
)
@pytest.mark.parametrize("sites_too", [False, True])
def test_a_round_that_was_lost_at_any_step_is_opened_by_a_new_process_to_the_same_bits(
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
    assert lies.opened is not None
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


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_however_often_and_for_whomever_a_round_is_opened_again_nobody_is_in_two_open_sums(
    data: st.DataObject,
) -> None:
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
