"""The history of a site's copy of the run: written once, there again after a kill at any moment, flat in cost."""

from dataclasses import replace
from pathlib import Path

import pytest

from collaborator.run_store import BLOCK, RunStore
from fedfair.ids import RoundNumber
from fedfair.run.history_digest import history_digest
from fedfair.run.state import RunState
from tests.actors.test_run_store import INITIAL, PLAN_DIGEST, RUN, STATES

LAST = STATES[-1]


def with_history(length: int, first: int = 0) -> RunState:
    one = LAST.history[0]
    history = tuple(replace(one, round=RoundNumber(number)) for number in range(first, first + length))
    return replace(LAST, history=history, history_digest=history_digest(history))


def grown(state: RunState, length: int) -> RunState:
    """Return a state whose history continues from another's, with the very same values."""
    history = (*state.history, *with_history(length).history[len(state.history) :])
    return replace(state, history=history, history_digest=history_digest(history))


def store_at(folder: Path) -> RunStore:
    return RunStore(folder / "a.run", lambda _: False)


def digest_at(folder: Path) -> bytes | None:
    found = store_at(folder).load(INITIAL)
    return None if found is None else found[1].digest(PLAN_DIGEST)


def test_a_state_comes_back_with_its_whole_history_after_every_evaluation(tmp_path: Path) -> None:
    store, state = store_at(tmp_path), with_history(0)
    for length in range(4 * BLOCK):
        state = grown(state, length)
        store.keep(RUN, state)
        assert digest_at(tmp_path) == state.digest(PLAN_DIGEST)
        if length % 7 == 0:
            store = store_at(tmp_path)
            state = store.load(INITIAL)[1]
            assert len(state.history) == length


def test_what_is_written_of_a_round_does_not_grow_with_the_history(tmp_path: Path) -> None:
    store, state, sizes = store_at(tmp_path), with_history(0), dict[int, int]()
    for length in range(0, 10 * BLOCK, 5):
        state = grown(state, length)
        store.keep(RUN, state)
        sizes[length] = (tmp_path / "a.run").stat().st_size
    assert sizes[length] == sizes[5 * BLOCK] > 0
    (file,) = tmp_path.glob("a.run.history-*")
    assert len(file.read_bytes().splitlines()) == len(state.history) // BLOCK * BLOCK
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("other", ["another run", "shortened"])
def test_another_history_leaves_the_state_before_whole(tmp_path: Path, other: str) -> None:
    store, state = store_at(tmp_path), with_history(3 * BLOCK)
    store.keep(RUN, state)
    before = (tmp_path / "a.run").read_bytes()
    if other == "shortened":
        kept = state.history[::2]
        after = replace(state, history=kept, history_digest=history_digest(kept))
    else:
        after = with_history(2 * BLOCK + 1, first=5)
    store.keep(RUN, after)
    assert digest_at(tmp_path) == after.digest(PLAN_DIGEST)
    # The process was killed after it had written the other file, and before it had written the state.
    (tmp_path / "a.run").write_bytes(before)
    assert digest_at(tmp_path) == state.digest(PLAN_DIGEST)


def test_a_run_that_begins_anew_has_no_history_of_the_one_before(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.keep(RUN, with_history(3 * BLOCK))
    store.keep("1" * 32, INITIAL)
    assert digest_at(tmp_path) == INITIAL.digest(PLAN_DIGEST)
    again = with_history(BLOCK + 3)
    store.keep("1" * 32, again)
    assert digest_at(tmp_path) == again.digest(PLAN_DIGEST)


def test_a_block_that_no_state_refers_to_is_written_again(tmp_path: Path) -> None:
    store, state = store_at(tmp_path), with_history(BLOCK + 1)
    store.keep(RUN, state)
    before = (tmp_path / "a.run").read_bytes()
    store.keep(RUN, grown(state, 2 * BLOCK + 1))
    (tmp_path / "a.run").write_bytes(before)
    store = store_at(tmp_path)
    found = store.load(INITIAL)
    assert found[1].digest(PLAN_DIGEST) == state.digest(PLAN_DIGEST)
    longer = grown(found[1], 3 * BLOCK + 2)
    store.keep(RUN, longer)
    assert digest_at(tmp_path) == longer.digest(PLAN_DIGEST)


@pytest.mark.parametrize("hand", ["gone", "a byte", "cut"])
def test_a_history_that_is_damaged_makes_its_states_as_good_as_absent(tmp_path: Path, hand: str) -> None:
    store_at(tmp_path).keep(RUN, with_history(2 * BLOCK))
    (file,) = tmp_path.glob("a.run.history-*")
    raw = file.read_bytes()
    if hand == "gone":
        file.unlink()
    else:
        file.write_bytes(raw[:-9] if hand == "cut" else raw[:9] + b"9" + raw[10:])
    assert store_at(tmp_path).load(INITIAL) is None
    again = with_history(2 * BLOCK + 1)
    store_at(tmp_path).keep(RUN, again)
    assert digest_at(tmp_path) == again.digest(PLAN_DIGEST)
