"""Computes the subject of a masked round, which is part of every transcript, from what each side holds.

A contribution is a function of the site's own records, the approved plan, what was broadcast, and the request. The
plan is bound by the session. Everything else that the aggregator says, and that a contribution depends on, is in
the two digests of `round_subject`: two sites that were told different things derive different masks, and their sum
stays noise. The attempt is not among it: each site counts its own attempts. No torch: the aggregator imports this.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.aggregation.sum_kinds import sum_kind
from fedfair.plan.purpose import Purpose
from fedfair.secagg.transcript import RoundSubject
from fedfair.signed_message import labelled_message


@dataclass(frozen=True, slots=True)
class SumKey:
    """The identity of a sum in its run; all attempts at it have the same key.

    Attributes:
        run_id: the run, as the aggregator names it.
        purpose: why it is summed.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        query: what an exact evaluation asks; None with any other purpose. Its number is part of the key.
    """

    run_id: str
    purpose: Purpose
    round: int
    query: QueryStep | None = None

    def digest(self) -> bytes:
        """Return 32 bytes that stand for run, purpose, round and step."""
        step = 0 if self.query is None else self.query.number
        fields = [self.run_id.encode(), self.purpose.value.encode(), struct.pack("<QI", self.round, step)]
        return _digest("fedfair/sum/v1", fields)


def round_subject(key: SumKey, model: GlobalModel, scaling: FeatureScaling | None) -> RoundSubject:
    """Return what a round for this sum is about.

    Args:
        key: which sum it is.
        model: the global model that the caller holds; ignored for a standardisation, which is about no model.
        scaling: the feature scaling in force when the round starts, None for none; ignored for a standardisation.
    """
    return RoundSubject(_model_digest(key, model, scaling), key.digest())


def scaling_digest(scaling: FeatureScaling | None) -> bytes:
    """Return 32 bytes that stand for a feature scaling, or for none."""
    if scaling is None:
        return _digest("fedfair/no-scaling/v1", [])
    return _digest(
        "fedfair/scaling/v1", [scaling.mean.astype("<f8").tobytes(), scaling.scale.astype("<f8").tobytes()]
    )


def _model_digest(key: SumKey, model: GlobalModel, scaling: FeatureScaling | None) -> bytes:
    if not sum_kind(key.purpose).is_about_model:
        return _digest("fedfair/no-model/v1", [])
    vector = model.vector.astype(model.vector.dtype.newbyteorder("<"), copy=False)
    fields = [
        hashlib.sha256(vector.data).digest(),
        struct.pack("<d", model.threshold),
        scaling_digest(scaling),
    ]
    if key.query is None:
        return _digest("fedfair/model/v1", fields)
    query = key.query
    fields += [struct.pack("<I", query.number), struct.pack(f"<{len(query.prefixes)}I", *query.prefixes)]
    return _digest("fedfair/query/v1", fields)


def _digest(label: str, fields: list[bytes]) -> bytes:
    return hashlib.sha256(labelled_message(label, fields)).digest()
