"""The names under which gRPC carries the frames, without gRPC.

There are no generated stubs. The actors build two generic handlers (or two multi-callables) from these paths and
leave gRPC's serialisers unset, so that what arrives is bytes and `codec` decodes it where a fault can still be
answered in words: an exception inside a deserialiser would reach the peer as a bare INTERNAL.

    collaborator: channel.stream_stream(PARTICIPATE); channel.unary_unary(CHECK)
    aggregator:   grpc.method_handlers_generic_handler(SERVICE, {PARTICIPATE_METHOD: ..., CHECK_METHOD: ...})

Both sides pass `limits.MAX_FRAME_BYTES` as `grpc.max_receive_message_length`.
"""

from __future__ import annotations

SERVICE = "fedfair.v1.Federation"

CHECK_METHOD = "Check"
PARTICIPATE_METHOD = "Participate"

CHECK = f"/{SERVICE}/{CHECK_METHOD}"
"""Unary: `encode_check_request` -> `decode_check_reply`."""

PARTICIPATE = f"/{SERVICE}/{PARTICIPATE_METHOD}"
"""Bidirectional stream of collaborator frames one way and aggregator frames the other."""

KEEPALIVE_MILLISECONDS = 5_000
"""After so long without a byte from the other end, either side asks for a sign of life (an HTTP/2 ping)."""

KEEPALIVE_TIMEOUT_MILLISECONDS = 5_000
"""How long the sign of life may take before the connection is given up."""
