"""The limits of the wire, in one place: they are security limits, not preferences.

A peer that exceeds one is refused before anything is allocated for it. Each is far above what an honest run needs.
"""

from __future__ import annotations

from fedfair.secagg.vector_digest import PIECE_BYTES

PROTOCOL_VERSION = 3
"""Of `proto/fedfair/v1/federation.proto`."""

MAX_CHUNK_BYTES = PIECE_BYTES
"""The pieces in which secure aggregation hashes a vector are those in which it travels."""

MAX_MASKED_MESSAGE_BYTES = 1 << 21
"""The greatest message that secure aggregation itself allows: the hybrid keys of 1000 members."""

MAX_FRAME_BYTES = MAX_MASKED_MESSAGE_BYTES + (1 << 14)
"""The longest message of secure aggregation with its tags; a chunk is half as long, all else is far shorter."""

MAX_VECTOR_BYTES = 1 << 36
"""64 GiB. Only a sanity bound: the length that counts is that of the plan's layout (`chunking.expect_upload`)."""

MAX_APPROVAL_BYTES = 4096

MAX_STATEMENT_BYTES = 4096

MAX_CHECK_BYTES = 1 << 14
"""A preflight question: an approval, a signature, and a few short fields."""

MAX_TEXT_CHARACTERS = 500
MAX_NAME_CHARACTERS = 64
MAX_CHECK_ITEMS = 16

MAX_LIST_BYTES = 1 << 20
"""The longest revocation list that is carried: about 26 000 certificates. A longer one travels by hand."""

MAX_TRUST_UPDATES = 1000
"""How often one stream may tell of certificates: every eight hours for a year."""

MAX_MEMBER = 2**16 - 1
"""A place in the roster, as secure aggregation writes it."""

MAX_ROUND = 2**31 - 1
MAX_ATTEMPT = 2**16
MAX_SUM_NUMBER = 2**63 - 1
MAX_SECONDS = 31 * 24 * 3600
"""No deadline of the plan is longer than a month."""
