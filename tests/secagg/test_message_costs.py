"""The bytes that are promised before a run are the bytes that travel."""

from __future__ import annotations

import numpy as np
import pytest

from fedfair.secagg.effects import Send, ServerEffect, SiteEffect
from fedfair.secagg.message_costs import set_up_bytes, site_bytes
from fedfair.secagg.params import Suite
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of, unit_update


class Counted(Wire):
    carried = 0
    sent = 0

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        self.carried += len(message)
        return super().hand_over(member, message)

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        self.carried += len(send.message)
        self.sent += len(send.message) if member == 2 else 0
        return super().to_server(member, send)


@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("members", [2, 5, 9])
def test_messages_take_the_bytes_that_are_promised(members: int, suite: Suite) -> None:
    wire = Counted(members, terms_of(members, suite=suite), {"training": shape_of(members)}, dtype=np.float32)
    wire.set_up()
    # The last message of a set-up goes out in front of the first round.
    assert wire.carried == set_up_bytes(members, suite)
    wire.sent = 0
    assert wire.round({m: unit_update(m, members) for m in wire.roster.indices}) is not None
    assert wire.sent == site_bytes(members)


def test_what_the_aggregator_carries_grows_as_the_square_of_the_sites() -> None:
    for suite in Suite:
        assert set_up_bytes(1000, suite) < 4.1 * set_up_bytes(500, suite)
    assert site_bytes(1000) < 2.01 * site_bytes(500)
    # The aim for a hundred sites: at most 25 kB each.
    assert site_bytes(100) == 13_134
