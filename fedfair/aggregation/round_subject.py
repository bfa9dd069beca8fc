"""Names the subject of a masked round, which is part of every transcript, from what each side holds.

A contribution is a function of the site's own records, the approved plan, the state of the run, and the request.
The plan is bound by the session and by the state; state and request are the two digests of `round_subject`. Each
side computes them from its own copy of the run: sites of different states derive different masks, and their sum
stays noise. Attempt and run are not among them: each site counts its own attempts, and a name of a run changes
nothing that is computed. No torch: the aggregator imports this.
"""

from __future__ import annotations

import hashlib
import struct

from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.secagg.transcript import RoundSubject
from fedfair.signed_message import labelled_message


def round_subject(state_digest: bytes, request: SumRequest) -> RoundSubject:
    """Return what a round for this sum is about.

    Args:
        state_digest: of the state of the run, 32 bytes.
        request: the sum that the state asks for.
    """
    return RoundSubject(state_digest, request_digest(request))


def request_digest(request: SumRequest) -> bytes:
    """Return 32 bytes that stand for purpose, round, step and query of a request."""
    query = request.query
    fields = [request.purpose.value.encode(), struct.pack("<Q", request.round)]
    if query is not None:
        fields += [struct.pack("<I", query.number), struct.pack(f"<{len(query.prefixes)}I", *query.prefixes)]
    if request.part:
        fields += [struct.pack("<I", request.part)]
    return _digest("fedfair/request/v2", fields)


def same_sum(
    model: GlobalModel, scaling: FeatureScaling | None, request: SumRequest, references: bytes = b""
) -> bytes:
    """Return 32 bytes that stand for one request about one model, whatever the session, restart or attempt.

    They name less than the state: an evaluation that was left out changes the state, and not what is computed.

    Args:
        model: the global model of the state.
        scaling: its feature scaling; None for none.
        request: the sum that the state asks for.
        references: digest of its references; empty where the plan has none.
    """
    fields = [model.vector_sha256, scaling_digest(scaling), request_digest(request)]
    fields += [references] if references else []
    return _digest("fedfair/same-sum/v2", fields)


def same_answer(request: SumRequest, *, on_demand: bool) -> bytes:
    """Return 32 bytes that stand for sums to which a site adds what never varies, such as its losses.

    They do not name the state: two models may differ by next to nothing. So such a sum of one place in the
    schedule is over the same sites in every run, and so are all saved models that are evaluated on demand.

    Args:
        request: the request.
        on_demand: whether it is about a saved model.
    """
    place = struct.pack("<QI", 0 if on_demand else request.round, request.step)
    fields = [request.purpose.value.encode(), place]
    return _digest("fedfair/same-answer/v2", fields)


def scaling_digest(scaling: FeatureScaling | None) -> bytes:
    """Return 32 bytes that stand for a feature scaling, or for none."""
    if scaling is None:
        return _NO_SCALING
    return _digest(
        "fedfair/scaling/v1", [scaling.mean.astype("<f8").tobytes(), scaling.scale.astype("<f8").tobytes()]
    )


def _digest(label: str, fields: list[bytes]) -> bytes:
    return hashlib.sha256(labelled_message(label, fields)).digest()


_NO_SCALING = _digest("fedfair/no-scaling/v1", [])
