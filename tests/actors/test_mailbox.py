"""A lying aggregator can make a site hold a few entries and no more; an honest one never waits."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import socket
from collections.abc import Coroutine
from contextlib import closing
from typing import TypeVar

import grpc
import numpy as np
import pytest

from aggregator.address import TRIES, Listen, free_port
from aggregator.broadcast import Broadcast, VectorMessage
from aggregator.connection import MAX_QUEUED, MAX_UNASKED, Connection
from aggregator.listening import bound
from aggregator.service import SERVER_OPTIONS
from aggregator.token_bucket import MAX_HOLDERS, TokenBuckets
from collaborator.calls import (
    FRAIL_SECONDS,
    MAX_FRUITLESS,
    MAX_IN_A_ROW,
    MAX_IN_A_SUM,
    Backoff,
    LineWatch,
    RefusalLimit,
    TooManyRefusalsError,
)
from collaborator.mailbox import MAX_SUMS, MAX_WAITING, Mailbox
from fedfair.aggregation.spec import SumSpec
from fedfair.audit.keeper import Occasion
from fedfair.errors import FedfairError, RemoteProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.secagg.messages import VERSION, Kind
from fedfair.statistics.table import Purpose
from fedfair.wire.codec import decode_aggregator_frame
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    Finished,
    SecaggMessage,
    SumStart,
)
from fedfair.wire.limits import MAX_CHUNK_BYTES
from fedfair.wire.receiving import MovesState, ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals
from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE
from tests.patience import PATIENCE

T = TypeVar("T")


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def question(number: int) -> ReceivedRequest:
    return ReceivedRequest(SumStart(SumNumber(number), Purpose.STANDARDISATION, 0, 1, bytes(32), 60))


def message(kind: int, content: bytes = b"") -> SecaggMessage:
    return SecaggMessage(bytes([VERSION, kind]) + content)


def test_entries_come_out_in_order_and_a_taker_waits_for_the_next() -> None:
    async def scenario() -> list[object]:
        mailbox, taken = Mailbox(), []
        taker = asyncio.create_task(mailbox.take())
        said = [message(Kind.CONFIRMS), message(Kind.ROUND_START), message(Kind.UNMASK_REQUEST)]
        for one in said:
            await mailbox.put(one)
        taken.append(await taker)
        taken += [await mailbox.take() for _ in range(2)]
        assert taken == said
        return taken

    assert len(run(scenario())) == 3


def test_a_reader_waits_when_a_few_entries_are_there_until_one_is_taken() -> None:
    async def scenario() -> None:
        mailbox = Mailbox()
        for _ in range(MAX_WAITING):
            await mailbox.put(message(Kind.UNMASK_REQUEST))
        blocked = asyncio.create_task(mailbox.put(message(Kind.CONSISTENCY_CHECK)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not blocked.done()
        assert len(mailbox) == MAX_WAITING
        await mailbox.take()
        await blocked
        assert len(mailbox) == MAX_WAITING

    run(scenario())


def test_a_newer_question_takes_the_place_of_older_ones_and_of_the_messages_of_their_rounds() -> None:
    async def scenario() -> list[object]:
        mailbox, junk = Mailbox(), SecaggMessage(b"\xff" * 9)
        kept = [message(Kind.CONFIRMS), junk]
        for one in (
            question(1),
            kept[0],
            message(Kind.ROUND_START),
            message(Kind.UNMASK_REQUEST),
            kept[1],
            question(2),
        ):
            await mailbox.put(one)
        taken = [await mailbox.take() for _ in range(len(mailbox))]
        assert (taken[0].start.sum_number, taken[1:]) == (2, kept)
        return taken

    assert run(scenario())


MOVES: list[MovesState] = [
    ReceivedState(memoryview(b"state")),
    ReceivedTotals(memoryview(b"totals")),
    ReceivedSum(bytes([VERSION, Kind.OPENED])),
]


@pytest.mark.parametrize("moves", MOVES, ids=lambda said: type(said).__name__)
def test_what_moves_the_state_comes_before_the_request_that_came_after_it(moves: MovesState) -> None:
    async def scenario() -> list[object]:
        mailbox, proposal = Mailbox(), message(Kind.PROPOSAL)
        for one in (question(1), message(Kind.UNMASK_REQUEST), moves, proposal, question(2)):
            await mailbox.put(one)
        return [await mailbox.take() for _ in range(len(mailbox))] + [proposal]

    first, second, third, proposal = run(scenario())
    assert first is moves
    assert second.start.sum_number == 2
    assert third is proposal


def test_a_reader_holds_two_models_at_most_beside_the_one_that_is_taken() -> None:
    async def scenario() -> None:
        mailbox = Mailbox()
        for said in MOVES[:MAX_SUMS]:
            await mailbox.put(said)
        blocked = asyncio.create_task(mailbox.put(MOVES[-1]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not blocked.done()
        await mailbox.take()
        await blocked
        assert len(mailbox) == MAX_SUMS

    run(scenario())


def test_the_end_of_a_run_is_heard_only_after_everything_before_it_was_worked_on() -> None:
    async def scenario() -> None:
        mailbox, done = Mailbox(), list[object]()
        await mailbox.put(MOVES[-1])
        ended = asyncio.create_task(mailbox.drained())

        async def work() -> None:
            while True:
                taken = await mailbox.take()
                for _ in range(10):
                    assert not ended.done()
                    await asyncio.sleep(0)
                done.append(taken)

        worker = asyncio.create_task(work())
        await ended
        assert done == [MOVES[-1]]
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(scenario())


def test_whatever_an_honest_aggregator_says_to_a_site_that_takes_nothing_fits() -> None:
    # Each sum may begin with a set-up, and may be given up at any step; the site has taken nothing of it.
    steps = [
        Kind.PROPOSAL, Kind.KEY_ADVERTISEMENTS, Kind.CONFIRMS, Kind.ROUND_START, Kind.PAIR_MASKS_REQUEST,
        Kind.SURVIVORS, Kind.UNMASK_REQUEST,
    ]  # fmt: skip
    parts = [steps[first:last] for first in (0, 3) for last in range(first, len(steps) + 1)]

    async def scenario() -> int:
        most = 0
        for sums in itertools.product(parts, repeat=3):
            mailbox = Mailbox()
            for number, kinds in enumerate(sums, start=1):
                await mailbox.put(question(number))
                for kind in kinds:
                    await mailbox.put(message(kind))
                    most = max(most, len(mailbox))
        return most

    assert run(scenario()) <= MAX_WAITING


def test_a_handful_of_refusals_about_one_sum_ends_the_stream() -> None:
    limit = RefusalLimit()
    for _ in range(MAX_IN_A_SUM - 1):
        limit.refused("nonsense")
    limit.asked()
    for _ in range(MAX_IN_A_SUM - 1):
        limit.refused("nonsense")
    with pytest.raises(TooManyRefusalsError, match="refused 4 requests about one sum and ends"):
        limit.refused("nonsense")


def test_sums_that_a_policy_refuses_one_after_the_other_are_borne_while_others_are_accepted() -> None:
    limit = RefusalLimit()
    for _ in range(10 * MAX_IN_A_ROW):
        limit.asked()
        limit.refused("no evaluation")
        limit.contributed()
    for _ in range(MAX_IN_A_ROW - 1):
        limit.asked()
        limit.refused("no evaluation")
    limit.asked()
    with pytest.raises(TooManyRefusalsError, match=f"refused {MAX_IN_A_ROW} requests in a row"):
        limit.refused("no evaluation")


SPEC = SumSpec(Purpose.EVALUATION, 4, 0, np.dtype("<f4"))


def state_of(chunks: int = 3) -> Broadcast:
    return Broadcast(BroadcastKind.STATE, bytes(chunks * MAX_CHUNK_BYTES))


def test_frames_and_vectors_leave_in_the_order_in_which_they_were_queued() -> None:
    payload, vector = np.arange(4.0).tobytes(), np.arange(2.0).tobytes()

    async def scenario() -> list[AggregatorFrame]:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(decode_aggregator_frame(raw))

        connection.publish(Broadcast(BroadcastKind.TOTALS, payload))
        connection.publish(VectorMessage(b"\x01opened", vector))
        connection.send(Accepted(SumNumber(1)))
        connection.leave(Finished(3, "done"))
        await connection.drain(write)
        return written

    start, chunk, message, beside, accepted, finished = run(scenario())
    assert start == BroadcastStart(BroadcastKind.TOTALS, len(payload), hashlib.sha256(payload).digest())
    assert (bytes(chunk.data), message) == (payload, SecaggMessage(b"\x01opened", len(vector)))
    assert (bytes(beside.data), accepted, finished) == (vector, Accepted(SumNumber(1)), Finished(3, "done"))


def test_a_stream_that_is_cut_half_way_through_a_vector_says_why_and_nothing_more_is_written() -> None:
    async def scenario() -> tuple[int, str]:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(raw)
            if len(written) == 2:
                connection.cut("too late")
                await asyncio.Event().wait()  # The peer reads no further.

        connection.publish(state_of())
        writer = asyncio.create_task(connection.drain(write))
        await asyncio.wait({writer, connection.cut_reason}, return_when=asyncio.FIRST_COMPLETED)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        return len(written), connection.cut_reason.result()

    assert run(scenario()) == (2, "too late")


def test_many_readers_of_one_vector_share_it() -> None:
    publication = state_of()
    frames = itertools.zip_longest(publication.frames(), publication.frames())
    assert [one == other for one, other in frames] == [True] * 4


def test_a_reader_that_reads_nothing_is_cut_off_before_its_queue_grows() -> None:
    async def scenario() -> str:
        connection = Connection(ParticipantId("a"))
        for number in range(1, MAX_QUEUED + 10):
            connection.send(Accepted(SumNumber(number)))
        return connection.cut_reason.result()

    assert "wait to be read" in run(scenario())


def test_after_the_last_frame_nothing_more_is_queued() -> None:
    async def scenario() -> int:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(raw)

        connection.leave(Finished(1, "done"))
        connection.leave(Finished(2, "done again"))
        connection.send(Accepted(SumNumber(1)))
        await connection.drain(write)
        return len(written)

    assert run(scenario()) == 1


def test_only_the_sum_that_was_asked_last_is_expected_and_earlier_ones_are_late() -> None:
    async def scenario() -> None:
        connection = Connection(ParticipantId("a"))
        with pytest.raises(RemoteProtocolError, match="asked for nothing yet"):
            connection.expected(SumNumber(1))
        connection.ask(SumNumber(3), SPEC, Occasion(Purpose.TRAINING, 1, 1))
        connection.ask(SumNumber(5), SPEC, Occasion(Purpose.TRAINING, 2, 1))
        assert connection.expected(SumNumber(5)) is SPEC
        assert connection.expected(SumNumber(4)) is None
        for number in (2, 6):
            with pytest.raises(RemoteProtocolError, match="asked for sum 5"):
                connection.expected(SumNumber(number))

    run(scenario())


def test_a_peer_that_says_more_than_it_was_asked_is_refused_before_its_record_grows() -> None:
    async def scenario() -> None:
        connection = Connection(ParticipantId("a"))
        for _ in range(3):
            connection.send(SecaggMessage(b"asked"))
            for _ in range(MAX_UNASKED):
                connection.heard()
        connection.send(Accepted(SumNumber(1)))
        with pytest.raises(RemoteProtocolError, match=f"a sent {MAX_UNASKED + 1} messages since its last request"):
            connection.heard()

    run(scenario())


# ---------------------------------------------------------------- how soon a site looks into a silence of its line


def test_a_line_that_broke_of_late_is_watched_more_closely_and_one_that_held_is_not() -> None:
    now = [0.0]
    watch = LineWatch(lambda: now[0])
    assert watch.next(0) is KEEPALIVE
    now[0] += FRAIL_SECONDS
    assert watch.next(1) is FRAIL_KEEPALIVE
    now[0] += FRAIL_SECONDS + 1
    assert watch.next(1) is KEEPALIVE


def test_a_line_that_brings_nothing_to_its_end_is_given_its_time_until_it_does() -> None:
    watch, backoff = LineWatch(lambda: 0.0), Backoff(lambda: 0.0)
    found = []
    for _ in range(MAX_FRUITLESS + 3):
        found.append(watch.next(backoff.fruitless))
        backoff.next()
    assert found == [KEEPALIVE] + [FRAIL_KEEPALIVE] * MAX_FRUITLESS + [KEEPALIVE] * 2
    backoff.reset()
    assert watch.next(backoff.fruitless) is FRAIL_KEEPALIVE


def test_a_first_dead_line_is_found_within_five_seconds_and_the_next_within_two() -> None:
    found = [
        keepalive.silent_milliseconds + keepalive.answer_milliseconds for keepalive in (KEEPALIVE, FRAIL_KEEPALIVE)
    ]
    assert found == [5_000, 1_750]


def test_the_aggregator_allows_as_many_pings_as_any_site_sends() -> None:
    from aggregator.service import SERVER_OPTIONS

    least = dict(SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]
    assert least <= min(KEEPALIVE.silent_milliseconds, FRAIL_KEEPALIVE.silent_milliseconds)


# ---------------------------------------------------------------- how often a participant may begin something


def test_a_full_bucket_lets_a_burst_through_and_then_one_for_each_pause() -> None:
    buckets = TokenBuckets(3, 2.0)
    assert [buckets.take(b"a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert not buckets.take(b"a", 1.9)
    assert buckets.take(b"a", 2.0)
    assert not buckets.take(b"a", 2.0)


def test_a_refused_attempt_costs_nothing_and_a_long_pause_fills_no_more_than_the_bucket() -> None:
    buckets = TokenBuckets(2, 1.0)
    for attempt in range(100):
        buckets.take(b"a", attempt / 1000)
    assert [buckets.take(b"a", 1000.0) for _ in range(3)] == [True, True, False]


def test_nobody_spends_the_tokens_of_another() -> None:
    buckets = TokenBuckets(1, 1.0)
    assert buckets.take(b"a", 0.0)
    assert not buckets.take(b"a", 0.0)
    assert buckets.take(b"b", 0.0)


def test_the_memory_of_buckets_is_bounded() -> None:
    buckets = TokenBuckets(1, 1.0)
    for number in range(2 * MAX_HOLDERS):
        buckets.take(number.to_bytes(4), 0.0)
    assert len(buckets._buckets) == MAX_HOLDERS


# ---- a server has one port on every address of its name, whatever others have taken

CREDENTIALS = grpc.insecure_server_credentials


class Ports:
    """A machine that gives out ports from 5000 on, some of which are taken on one of its addresses."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.next_port = 5000
        self.held: list[str] = []

    def server(self) -> PortServer:
        return PortServer(self)


class PortServer:
    def __init__(self, ports: Ports) -> None:
        self._ports, self._own, self.is_started = ports, list[str](), False

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        del server_credentials
        host, _, port = address.rpartition(":")
        if port == "0":
            port, self._ports.next_port = str(self._ports.next_port), self._ports.next_port + 1
        if f"{host}:{port}" in self._ports.taken:
            raise RuntimeError("taken")
        self._own.append(f"{host}:{port}")
        self._ports.held.append(self._own[-1])
        return int(port)

    async def start(self) -> None:
        self.is_started = True

    async def stop(self, grace: float | None) -> None:
        assert self.is_started, "gRPC gives nothing back of a server that has not started"
        del grace
        self._ports.held = [each for each in self._ports.held if each not in self._own]


def addresses() -> list[str]:
    """Return the addresses of localhost as a URL has them, in the order in which they are taken."""
    return [str(place).rpartition(":")[0] for place in Listen("localhost", 0).places()]


def test_another_port_is_chosen_where_one_address_of_the_name_has_it_taken() -> None:
    first, *others = addresses()
    if not others:
        pytest.skip("localhost has one address on this machine")
    ports = Ports({f"{others[0]}:5000", f"{others[-1]}:5001"})
    _, port = asyncio.run(bound(ports.server, Listen("localhost", 0), CREDENTIALS))
    assert (port, ports.held) == (5002, [f"{host}:5002" for host in (first, *others)])


def test_a_stated_port_that_is_taken_on_one_address_is_refused_and_the_other_given_back() -> None:
    if len(addresses()) == 1:
        pytest.skip("localhost has one address on this machine")
    ports = Ports({f"{addresses()[-1]}:7000"})
    with pytest.raises(FedfairError, match="cannot listen on localhost:7000: taken"):
        asyncio.run(bound(ports.server, Listen("localhost", 7000), CREDENTIALS))
    assert ports.held == []


def test_a_name_whose_addresses_share_no_port_is_a_fault_after_some_tries() -> None:
    last = addresses()[-1]
    ports = Ports({f"{last}:{port}" for port in range(5000, 6000)})
    with pytest.raises(FedfairError, match="cannot listen on localhost:0"):
        asyncio.run(bound(ports.server, Listen("localhost", 0), CREDENTIALS))
    assert (ports.next_port, ports.held) == (5000 + TRIES, [])


def test_a_real_server_answers_on_every_address_and_an_abandoned_one_gives_them_back() -> None:
    def make() -> grpc.aio.Server:
        return grpc.aio.server(options=SERVER_OPTIONS)

    async def served() -> None:
        server, port = await bound(make, Listen("localhost", 0), CREDENTIALS)
        await server.start()
        for place in Listen("localhost", 0).places():
            with closing(socket.create_connection((place.host, port), timeout=PATIENCE)):
                pass
        with pytest.raises(FedfairError, match="Address already in use"):
            await bound(make, Listen("localhost", port), CREDENTIALS)
        await server.stop(None)

    asyncio.run(served())


def test_a_free_port_is_free_on_every_address() -> None:
    port = free_port("localhost")
    assert [place.port for place in Listen("localhost", port).places()] == [port] * len(addresses())
