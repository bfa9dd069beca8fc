"""The names under which gRPC carries the frames, without gRPC.

There are no generated stubs. The actors build two generic handlers (or two multi-callables) from these paths and
leave gRPC's serialisers unset, so that what arrives is bytes and `codec` decodes it where a fault can still be
answered in words: an exception inside a deserialiser would reach the peer as a bare INTERNAL.

    collaborator: channel.stream_stream(PARTICIPATE); channel.unary_unary(CHECK)
    aggregator:   grpc.method_handlers_generic_handler(SERVICE, {PARTICIPATE_METHOD: ..., CHECK_METHOD: ...})

Both sides pass `limits.MAX_FRAME_BYTES` as `grpc.max_receive_message_length`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SERVICE = "fedfair.v1.Federation"

CHECK_METHOD = "Check"
PARTICIPATE_METHOD = "Participate"

CHECK = f"/{SERVICE}/{CHECK_METHOD}"
"""Unary: `encode_check_request` -> `decode_check_reply`."""

PARTICIPATE = f"/{SERVICE}/{PARTICIPATE_METHOD}"
"""Bidirectional stream of collaborator frames one way and aggregator frames the other."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """How a dead line is found: an HTTP/2 ping after some silence, which must be answered in time.

    Whatever arrives counts as a sign of life.

    Attributes:
        silent_milliseconds: without a byte from the other end, until it is asked for a sign of life.
        answer_milliseconds: how long that may take before the connection is given up.
    """

    silent_milliseconds: int
    answer_milliseconds: int

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        """Return the options of a gRPC channel or server; it may speak when no call is under way too."""
        return (
            ("grpc.keepalive_time_ms", self.silent_milliseconds),
            ("grpc.keepalive_timeout_ms", self.answer_milliseconds),
            # Where this is longer than the keepalive's own timeout, gRPC waits for it: a minute by itself.
            ("grpc.http2.ping_timeout_ms", self.answer_milliseconds),
            ("grpc.http2.max_pings_without_data", 0),
        )


KEEPALIVE: Final = KeepAlive(2_000, 3_000)
"""Of both sides: a dead line is found within five seconds."""

FRAIL_KEEPALIVE: Final = KeepAlive(750, 1_000)
"""Of a site whose line broke of late: its next dead line is found within two seconds."""

MIN_PING_MILLISECONDS: Final = 500
"""Who asks for signs of life more often, and says nothing else, is sent away."""
