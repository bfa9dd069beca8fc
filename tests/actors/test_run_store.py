"""The kept state of a site's run: there again after a restart, and as good as absent where it is damaged."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collaborator.run_store import RunStore
from fedfair.errors import FedfairError, LocalProtocolError
from fedfair.run.state import RunState
from tests.run.test_run_state import PLAN_DIGEST, states

RUN, ANOTHER_RUN = "0" * 32, "1" * 32
STATES = states(output="average", standardize="secure", method="exact")
INITIAL, LAST = STATES[0], STATES[-1]


def store_at(folder: Path, *answered: bytes) -> RunStore:
    return RunStore(folder / "a.run", set(answered).__contains__)


def loaded(store: RunStore, initial: RunState = INITIAL) -> tuple[str, bytes] | None:
    """Return what is kept, as values that compare."""
    found = store.load(initial)
    return None if found is None else (found[0], found[1].digest(PLAN_DIGEST))


def test_the_state_that_was_kept_last_comes_back_with_its_run(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    for run_id in (RUN, ANOTHER_RUN):
        for state in STATES:
            store.keep(run_id, state)
            assert loaded(store_at(tmp_path)) == (run_id, state.digest(PLAN_DIGEST))


def test_nothing_is_kept_before_the_first_state(tmp_path: Path) -> None:
    assert store_at(tmp_path).load(INITIAL) is None


def test_the_file_is_for_its_owner_alone_and_the_only_one(tmp_path: Path) -> None:
    store_at(tmp_path).keep(RUN, LAST)
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("kept")
    store = store_at(folder)
    store.keep(RUN, STATES[-2])
    store.keep(RUN, LAST)
    return (folder / "a.run").read_bytes()


SOUND = {None, (RUN, STATES[-2].digest(PLAN_DIGEST)), (RUN, LAST.digest(PLAN_DIGEST))}
"""What a damaged file may give: nothing, or one of the two states that were kept; never anything else."""


@given(cut=st.integers(0, 1 << 20))
@settings(deadline=None, max_examples=70, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_is_cut_anywhere_gives_a_kept_state_or_nothing(cut: int, kept: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.run").write_bytes(kept[: cut % len(kept)])
    assert loaded(store_at(tmp_path)) in SOUND


def why_unread(path: Path) -> str | None:
    store = store_at(path.parent)
    assert loaded(store) is None
    return None if store.unread is None else store.unread.fault


def test_a_file_that_gives_no_state_says_why(kept: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    assert why_unread(path) is None
    newer = kept.replace(b"fedfair run 4", b"fedfair run 9")
    path.write_bytes(newer)
    assert why_unread(path) == "another version of fedfair wrote it"
    path.write_bytes(bytes(len(kept) // 2) + newer[len(kept) // 2 :])
    assert why_unread(path) == "another version of fedfair wrote it"
    path.write_bytes(kept[:40])
    assert why_unread(path) == "it is damaged"
    path.write_bytes(kept)
    store = store_at(tmp_path)
    assert loaded(store) is not None
    assert store.unread is None


@given(place=st.integers(0, 1 << 20), damage=st.integers(1, 255))
@settings(deadline=None, max_examples=70, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_a_damaged_byte_gives_a_state(place: int, damage: int, kept: bytes, tmp_path: Path) -> None:
    raw = bytearray(kept)
    raw[place % len(raw)] ^= damage
    (tmp_path / "a.run").write_bytes(raw)
    assert loaded(store_at(tmp_path)) in SOUND - {None}


@given(written=st.integers(0, 1 << 20))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_process_that_is_killed_while_it_writes_leaves_the_state_before(written: int, tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.unlink(missing_ok=True)
    store = store_at(tmp_path)
    for state in STATES[:-1]:
        store.keep(RUN, state)
    before = path.read_bytes()
    store.keep(RUN, LAST)
    after = path.read_bytes()
    assert len(after) == len(before)
    changed = [place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    stop = changed[0] + written % (changed[-1] - changed[0])
    path.write_bytes(after[:stop] + before[stop:])
    assert loaded(store_at(tmp_path)) == (RUN, STATES[-2].digest(PLAN_DIGEST))


def test_a_vector_that_is_in_its_place_already_is_not_written_again(tmp_path: Path) -> None:
    """The vectors are spoilt in the file behind the store's back, with the time of the file put back."""
    path, store = tmp_path / "a.run", store_at(tmp_path)
    for _ in range(4):  # the first ones make the file longer
        store.keep(RUN, LAST)
    found, raw = path.stat(), path.read_bytes()
    model = LAST.model.vector.tobytes()
    spoilt = raw.replace(model, bytes(len(model)))
    assert raw.count(model) >= 2
    with path.open("r+b") as file:
        file.write(spoilt)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    store.keep(RUN, LAST)
    store.keep(RUN, LAST)
    assert path.read_bytes().count(model) == 0
    assert loaded(store_at(tmp_path)) is None


def test_after_somebody_else_wrote_to_the_file_everything_is_written_again(tmp_path: Path) -> None:
    path, store = tmp_path / "a.run", store_at(tmp_path)
    for _ in range(4):
        store.keep(RUN, LAST)
    found, model = path.stat(), LAST.model.vector.tobytes()
    raw = path.read_bytes()
    with path.open("r+b") as file:
        file.write(raw.replace(model, bytes(len(model))))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    store.keep(RUN, LAST)
    store.keep(RUN, LAST)
    assert loaded(store_at(tmp_path)) == (RUN, LAST.digest(PLAN_DIGEST))


def test_a_state_of_another_plan_is_as_good_as_absent(tmp_path: Path) -> None:
    store_at(tmp_path).keep(RUN, states(output="last")[-1])
    assert store_at(tmp_path).load(INITIAL) is None


def test_a_file_that_is_damaged_is_replaced_by_the_next_state(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_bytes(b"rubbish")
    store = store_at(tmp_path)
    store.keep(RUN, LAST)
    assert loaded(store) == (RUN, LAST.digest(PLAN_DIGEST))


@pytest.mark.parametrize("run_id", ["", "0" * 31, "0" * 33])
def test_a_run_without_its_name_is_our_bug_and_leaves_the_file_as_it_was(run_id: str, tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.keep(RUN, INITIAL)
    with pytest.raises(LocalProtocolError, match="a run is named by 32 characters"):
        store.keep(run_id, LAST)
    assert loaded(store) == (RUN, INITIAL.digest(PLAN_DIGEST))


def test_a_folder_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, and no folder")
    with pytest.raises(FedfairError) as fault:
        store_at(tmp_path / "state").keep(RUN, LAST)
    assert "a.run" in fault.value.message


def test_a_state_counts_as_held_where_this_site_has_answered_about_it(tmp_path: Path) -> None:
    answered = LAST.digest(PLAN_DIGEST)
    store = store_at(tmp_path, answered)
    store.keep(RUN, INITIAL)
    assert store.has_held(answered)
    assert not store.has_held(INITIAL.digest(PLAN_DIGEST))
