"""The digest of a run's evaluations: each one extends it, so nobody reads the older ones again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pydantic import TypeAdapter

from fedfair.aggregation.evaluator import Evaluation
from fedfair.signed_message import labelled_message

NO_HISTORY = bytes(32)
"""The digest of a history without an evaluation."""

_EVALUATION = TypeAdapter(Evaluation)


def extended_history(digest: bytes, evaluation: Evaluation) -> bytes:
    """Return the digest of a history with one more evaluation, from the digest without it."""
    fields = [digest, evaluation_bytes(evaluation)]
    return hashlib.sha256(labelled_message("fedfair/run-history/1", fields)).digest()


def history_digest(history: tuple[Evaluation, ...]) -> bytes:
    """Return the digest of a whole history."""
    digest = NO_HISTORY
    for evaluation in history:
        digest = extended_history(digest, evaluation)
    return digest


def evaluation_bytes(evaluation: Evaluation) -> bytes:
    """Return the bytes that stand for an evaluation."""
    return canonical(_EVALUATION.dump_python(evaluation))


def canonical(value: object) -> bytes:
    """Return nested mappings, lists, texts and numbers as the one JSON text that equal values have."""
    # Python writes the shortest text that reads back as the same number, so equal texts are equal numbers.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_listed).encode()


def _listed(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no canonical form")
