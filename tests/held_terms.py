"""States of a run with other facts than they have come to."""

from dataclasses import replace

from fedfair.run.state import RunState


def holding(state: RunState, **terms: object) -> RunState:
    """Return the state with other states of terms, by slot; None takes one away."""
    held = {**state.terms, **terms}
    return replace(state, terms={name: each for name, each in held.items() if each is not None})


def with_fact(state: RunState, name: str, value: object) -> RunState:
    """Return the state with another value of one fact."""
    if name == "history_digest":
        return replace(state, history_digest=value)  # type: ignore[arg-type]
    return RunState.of_facts({**state.facts, name: value}, state.history_digest)
