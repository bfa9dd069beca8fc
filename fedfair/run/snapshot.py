"""A state of a run on its way to a file or to another process, and back, bit for bit.

A snapshot is a value that JSON can hold and a few vectors that it should not. Decides the form, and checks it when
it comes back; where it is written, and how often, is its owner's business. What a fact of the state looks like is
its slot's (`state_slots.py`). Floats survive JSON exactly, because Python writes the shortest text that reads back
as the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedfair.errors import LocalProtocolError
from fedfair.run.history_digest import history_digest
from fedfair.run.state import RunState
from fedfair.run.state_slots import SLOTS
from fedfair.terms.slot import Slot, Vectors

FIRST_MOMENTS, SECOND_MOMENTS = "moments.first", "moments.second"


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A state without its Python types.

    Attributes:
        state: by the slot's name nested dicts, lists, strings and numbers (NaN and infinity among them), for
            `json.dumps`; None for a fact that the state does not have.
        vectors: arrays by name, not copied: the slot's name, with a point and a name in it where it has several.
    """

    state: dict[str, object]
    vectors: Mapping[str, NDArray[np.floating]]


def known_sha256(facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the SHA-256 (32 bytes) of the long vectors of a state's facts, by name; each is computed once."""
    return {
        _full(name, inner): digest
        for name, fact in facts.items()
        if fact is not None
        for inner, digest in SLOTS[name].known_sha256(fact).items()
    }


def snapshot_of(state: RunState) -> RunSnapshot:
    """Return the snapshot of a state."""
    facts = state.facts
    return RunSnapshot({name: words_of(name, fact) for name, fact in facts.items()}, vectors_of(facts))


def words_of(name: str, fact: object) -> object:
    """Return one fact of a state in the form of `RunSnapshot.state`."""
    slot = SLOTS[name]
    return None if fact is None else slot.form.dump_python(slot.fields(fact))


def vectors_of(facts: Mapping[str, Any]) -> dict[str, NDArray[np.floating]]:
    """Return the vectors of the facts of a state in the form of `RunSnapshot.vectors`."""
    return {
        _full(name, inner): vector
        for name, fact in facts.items()
        if fact is not None
        for inner, vector in SLOTS[name].vectors(fact).items()
    }


def state_of(snapshot: RunSnapshot, initial: RunState) -> RunState:
    """Return the state that a snapshot is of.

    Args:
        snapshot: of a state, also after a journey through JSON; its models and moments are not copied.
        initial: the state before the first sum of the same plan; it says how long vectors are, and which are kept.

    Raises:
        LocalProtocolError: the snapshot is damaged, of another version, or of another plan.
    """
    read = {name: _read(slot, snapshot.state.get(name)) for name, slot in SLOTS.items()}
    try:
        facts = {name: _fact(name, read[name], snapshot.vectors, initial) for name in SLOTS}
    except (KeyError, ValueError) as error:
        stage, names = read["stage"], sorted(snapshot.vectors)
        raise LocalProtocolError(
            f"a snapshot at stage {stage!r} with {names} does not fit this training run",
            "it belongs to another plan; start the run again",
        ) from error
    return RunState.of_facts(facts, history_digest(facts["history"]))


def _read(slot: Slot[Any, Any], packed: object) -> Any:  # noqa: ANN401 - as the slot has it
    try:
        return None if packed is None else slot.form.validate_python(packed)
    except ValidationError as error:
        raise LocalProtocolError(
            f"the snapshot of the training run cannot be read: {error.error_count()} entries are wrong",
            "it is damaged or of another version of fedfair; start the run again",
        ) from error


def _fact(name: str, fields: Any, vectors: Vectors, initial: RunState) -> Any:  # noqa: ANN401 - as the slot has it
    """Return one fact of a state; raises KeyError or ValueError where it does not fit the run."""
    slot = SLOTS[name]
    if slot.planned and (fields is None) != (initial.facts[name] is None):
        raise ValueError(name)
    if fields is None:
        return None
    inner = {
        full.removeprefix(name).removeprefix("."): vector
        for full, vector in vectors.items()
        if full == name or full.startswith(f"{name}.")
    }
    return slot.made(fields, inner, initial)


def _full(name: str, inner: str) -> str:
    return f"{name}.{inner}" if inner else name
