"""The ledger on the disk: what it survives, and what it refuses to continue with."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collaborator.ledger import Ledger, LedgerTotal, RollbackGuard, witness_of
from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.entries import LedgerEntry, parse_release
from fedfair.privacy.releases import GaussianRelease, SkellamRelease, Unprotected, combined
from tests.actors.ledger_makers import LOOK, STEP, entry, written
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

SUMS = SkellamRelease("training", 1000.5, 99.25, 1e6, 1)
EVERYTHING = (entry(), entry(LOOK, "cohort-2020"), entry(SUMS), entry(Unprotected("standardisation"), "Ä"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def anything(_: Sequence[LedgerEntry]) -> None:
    """Permit it."""


def nothing(_: Sequence[LedgerEntry]) -> None:
    raise PrivacyError("enough")


def altered(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_what_was_recorded_is_read_back_by_another_process_and_seen_once(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "ledger.sqlite"
    ledger = written(path, EVERYTHING)
    assert (Ledger(path).look(), path.stat().st_mode & 0o777) == (EVERYTHING, 0o600)
    assert (list(path.parent.iterdir()), ledger.look()) == ([path], ())
    written(path, [entry(LOOK)])
    assert ledger.look() == (entry(LOOK),)


@settings(max_examples=70)
@given(
    st.builds(
        GaussianRelease,
        st.sampled_from(["training", "standardisation", "evaluation"]),
        st.floats(1e-6, 1e6),
        st.floats(1e-9, 1.0),
        st.integers(1, 10**9),
        st.none() | st.floats(1e-9, 1e9),
    )
)
def test_a_release_is_spelt_without_losing_a_bit(release: GaussianRelease) -> None:
    spelt = entry(release)
    assert parse_release(spelt.kind, spelt.parameters) == release


def test_what_is_not_permitted_is_not_written(tmp_path: Path) -> None:
    ledger = written(tmp_path / "ledger.sqlite", [entry()])
    with pytest.raises(PrivacyError, match="enough"):
        ledger.record(entry(LOOK), nothing)
    assert Ledger(tmp_path / "ledger.sqlite").look() == (entry(),)
    ledger.record(entry(LOOK), anything)
    assert Ledger(tmp_path / "ledger.sqlite").look() == (entry(), entry(LOOK))


def test_two_that_ask_at_once_never_both_get_the_last_of_a_budget(tmp_path: Path) -> None:
    path, most = tmp_path / "ledger.sqlite", 30
    Ledger(path)
    barrier = threading.Barrier(3)

    def spend() -> None:
        ledger, seen = Ledger(path), 0
        barrier.wait(PATIENCE)

        def permit(fresh: Sequence[LedgerEntry]) -> None:
            nonlocal seen
            seen += len(fresh)
            if seen >= most:
                raise PrivacyError("enough")

        while True:
            try:
                ledger.record(entry(), permit)
                seen += 1
            except PrivacyError:
                return

    threads = [threading.Thread(target=spend) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Ledger(path).look()) == most


def sql(statement: str) -> Callable[[Path], object]:
    return lambda path: altered(path, statement)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "deleted": (lambda path: path.unlink(), "it is gone"),
    "emptied": (lambda path: path.write_bytes(b""), "it is empty, and a ledger never is"),
    "overwritten": (lambda path: path.write_bytes(b"not a database, for sure" * 99), "not a database"),
    "another database": (sql("PRAGMA application_id = 0"), "a database of something else"),
    "a newer version": (sql("PRAGMA user_version = 2"), "is of version 2, and this fedfair"),
    "a line changed": (sql("UPDATE entry SET at = '2031' WHERE number = 1"), "entry 1 does not fit"),
    "a line removed": (sql("DELETE FROM entry WHERE number = 2"), "entry 2 does not fit"),
    "the last line removed": (sql("DELETE FROM entry WHERE number = 4"), "no longer holds entry 4"),
    "everything removed": (sql("DELETE FROM entry"), "no longer holds entry 4"),
    "no table": (sql("DROP TABLE entry"), "no such table"),
}
SEEN_ONLY_WHILE_RUNNING = {"the last line removed", "everything removed"}
SEEN_ONLY_AT_A_START = {"a line changed", "a line removed"}


@pytest.mark.parametrize("change", [name for name in CHANGES if name not in SEEN_ONLY_AT_A_START])
def test_a_ledger_that_is_not_what_it_was_is_not_written_to(path: Path, change: str) -> None:
    ledger = written(path, EVERYTHING)
    act, words = CHANGES[change]
    act(path)
    with pytest.raises(PrivacyError, match=words) as caught:
        ledger.record(entry(), anything)
    assert "nothing is released" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("change", [name for name in CHANGES if name not in SEEN_ONLY_WHILE_RUNNING | {"deleted"}])
def test_a_start_refuses_a_ledger_that_is_damaged(path: Path, change: str) -> None:
    written(path, EVERYTHING)
    act, words = CHANGES[change]
    act(path)
    with pytest.raises(PrivacyError, match=words):
        Ledger(path).look()


def test_an_older_copy_put_in_place_is_noticed_by_the_process_that_wrote_more(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "backup.sqlite"
    ledger = written(path, [entry()])
    shutil.copy(path, copy)
    ledger.record(entry(LOOK), anything)
    copy.replace(path)
    with pytest.raises(PrivacyError, match="no longer holds entry 2 as this site has seen it"):
        ledger.record(entry(), anything)


@pytest.mark.parametrize(
    "change", ["deleted", "the last line removed", "everything removed", "an older copy", "another"]
)
def test_a_start_notices_a_ledger_that_is_behind_what_this_site_has_written(tmp_path: Path, change: str) -> None:
    path, older, witness = (
        tmp_path / "ledger.sqlite",
        tmp_path / "older.sqlite",
        RollbackGuard(tmp_path / "state" / "seen"),
    )
    for one in EVERYTHING:
        shutil.copy(path, older) if path.exists() else None
        Ledger(path, witness).record(one, anything)
    if change in CHANGES:
        CHANGES[change][0](path)
    else:
        path.unlink()
        older.rename(path) if change == "an older copy" else written(path, [entry(LOOK)] * 9)
    with pytest.raises(PrivacyError, match=r"it is gone|no longer holds entry 4") as caught:
        Ledger(path, witness).look()
    assert f"to start again all the same, remove {witness.path}" in caught.value.remedy
    assert path.exists() == (change != "deleted")
    witness.path.unlink()
    assert len(Ledger(path, witness).look()) == {"deleted": 0, "everything removed": 0, "another": 9}.get(
        change, 3
    )


def test_a_site_that_is_behind_others_in_its_ledger_goes_on_but_for_a_damaged_note(tmp_path: Path) -> None:
    path, witness = tmp_path / "ledger.sqlite", RollbackGuard(tmp_path / "seen")
    Ledger(path, witness).record(entry(), anything)
    written(path, [entry(LOOK)])
    assert Ledger(path, witness).look() == (entry(), entry(LOOK))
    witness.path.write_text("{}")
    with pytest.raises(PrivacyError, match="cannot be read as this site's rollback guard"):
        Ledger(path, witness)


def test_an_entry_of_a_kind_that_this_version_does_not_know_is_refused(path: Path) -> None:
    written(path, [entry()])
    altered(path, "UPDATE entry SET kind = 'laplace'")
    with pytest.raises(PrivacyError, match="'laplace', this version knows gaussian, shared, skellam, unprotected"):
        Ledger(path).look()
    altered(path, "UPDATE entry SET kind = 'gaussian'")
    no_object = "UPDATE entry SET parameters = '[1]'"
    deeper_than_a_stack = "UPDATE entry SET parameters = replace(hex(zeroblob(1000)), '0', '[')"
    for change in ("UPDATE entry SET parameters = '{}'", no_object, deeper_than_a_stack):
        altered(path, change)
        with pytest.raises(PrivacyError, match="'gaussian' cannot be read"):
            Ledger(path).look()


def test_a_table_that_was_made_to_hold_bytes_is_refused(path: Path) -> None:
    written(path, [entry()])
    loosened = "UPDATE sqlite_master SET sql = replace(sql, 'STRICT', '')"
    altered(path, "PRAGMA writable_schema = 1", loosened)
    altered(path, "UPDATE entry SET at = x'ff'")
    with pytest.raises(PrivacyError, match="entry 1 holds what is no text"):
        Ledger(path).look()


@pytest.mark.parametrize("place", ["folder", "journal"])
def test_a_ledger_that_cannot_be_written_releases_nothing(tmp_path: Path, path: Path, place: str) -> None:
    if place == "folder":
        (tmp_path / "file").write_text("")
        with pytest.raises(PrivacyError, match="nothing is released"):
            Ledger(tmp_path / "file" / "ledger.sqlite")
        return
    ledger = written(path, [entry()])
    # What SQLite needs beside the file while it writes cannot be made: as on a disk that is full or read-only.
    (tmp_path / "ledger.sqlite-journal").mkdir()
    with pytest.raises(PrivacyError, match="nothing is released"):
        ledger.record(entry(LOOK), anything)


def test_a_ledger_may_be_a_link_and_no_name_confuses_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept here?#%20.sqlite"
    written(kept, [entry()])
    link = tmp_path / "ledger.sqlite"
    link.symlink_to(kept)
    Ledger(link).record(entry(LOOK), anything)
    assert Ledger(kept).look() == (entry(), entry(LOOK))
    dangling = tmp_path / "dangling.sqlite"
    dangling.symlink_to(tmp_path / "unmounted" / "ledger.sqlite")
    with pytest.raises(PrivacyError, match="it is gone"):
        Ledger(dangling).look()
    assert not (tmp_path / "unmounted").exists()


def test_the_chain_covers_every_field() -> None:
    base = entry()
    others = [
        replace(base, at="2031-05-04T10:11:13+00:00"),
        entry(LOOK),
        entry(data_set=""),
        entry(data_set="None"),
        *(replace(base, origin=replace(base.origin, **{name: "x"})) for name in ("participant", "federation")),
        replace(base, origin=replace(base.origin, plan_digest="sha256:" + "c" * 64)),
    ]
    values = {one.chained(bytes(32)) for one in (base, *others)} | {base.chained(b"\1" * 32)}
    assert len(values) == len(others) + 2


# ---- a site that is killed at any instant has recorded everything that it has used: real processes, real kills

HERE = Path(__file__).parent
KILLS = 4 + 2 * 6 + 8 + 9


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_whenever_a_process_is_killed_everything_that_it_used_is_recorded(tmp_path: Path) -> None:
    kills = [json.loads(line) for line in run(str(HERE / "ledger_crashes.py"), str(tmp_path)).splitlines()]
    assert len(kills) == KILLS
    for kill in kills:
        by_the_kernel = kill["point"].startswith("byte")
        assert kill["died_of"] == (signal.SIGXFSZ if by_the_kernel else signal.SIGKILL), kill
        ledger = Ledger(Path(kill["path"]))
        recorded = len(ledger.look())
        # Committed and not used yet: the only kill in which a release is counted that never was.
        assert recorded == kill["used"] + (kill["point"] == "recorded"), kill
        ledger.record(entry(), lambda _: None)
        assert len(Ledger(Path(kill["path"])).look()) == recorded + 1


DISK_FULL = """
import resource, signal, sys
from pathlib import Path
from collaborator.ledger import Ledger
from fedfair.errors import PrivacyError
from tests.actors.ledger_makers import entry
ledger = Ledger(Path(sys.argv[1]))
ledger.look()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    ledger.record(entry(), lambda _: None)
except PrivacyError as fault:
    print(fault.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ledger.record(entry(), lambda _: None)
"""


@pytest.mark.parametrize("room", [300, 8600])
def test_a_disk_that_is_full_refuses_the_release_until_there_is_room(path: Path, room: int) -> None:
    for _ in range(3):
        Ledger(path).record(entry(), lambda _: None)
    told = run("-c", DISK_FULL, str(path), str(room))
    assert "cannot be used as this site's ledger" in told
    assert "nothing is released" in told
    assert len(Ledger(path).look()) == 4


def test_a_ledger_that_may_only_be_read_releases_nothing(tmp_path: Path) -> None:
    nobody = 65534  # for root, who may write whatever the mode says
    path = Path(os.path.realpath(tmp_path)) / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.record(entry(), lambda _: None)
    path.chmod(0o444)
    folders = [folder for folder in path.parents if folder.stat().st_mode & 0o005 != 0o005]
    modes, privileged = [folder.stat().st_mode for folder in folders], os.geteuid() == 0
    try:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode | 0o055)
        if privileged:
            os.seteuid(nobody)
        with pytest.raises(PrivacyError, match=r"readonly database.*nothing is released"):
            ledger.record(entry(), lambda _: None)
    finally:
        if privileged:
            os.seteuid(0)
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert len(Ledger(path).look()) == 1


# ---- the total of a ledger: a start reads what is new, and nothing that it says can hide what was spent

EVERY = 10
MANY = [entry(STEP), entry(LOOK), entry(STEP, "b"), entry(Unprotected("training"), "b")]


def opened(folder: Path) -> Ledger:
    return Ledger(folder / "ledger.sqlite", witness_of(folder, "a"), LedgerTotal(folder / "a.ledger-total", EVERY))


def spent(entries: Sequence[LedgerEntry], data_set: str | None) -> tuple[GaussianRelease, ...]:
    mine = (one.release for one in entries if one.origin.data_set == data_set)
    return combined(release for release in mine if isinstance(release, GaussianRelease))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that has gone three entries beyond its second total."""
    folder = tmp_path_factory.mktemp("kept")
    ledger = opened(folder)
    for number in range(2 * EVERY + 3):
        ledger.record(MANY[number % len(MANY)], lambda _: None)
    return folder


def test_a_start_comes_to_the_same_total_as_one_that_reads_everything(kept: Path) -> None:
    quick, whole = opened(kept).look(), Ledger(kept / "ledger.sqlite").look()
    assert (len(whole), len(quick)) == (2 * EVERY + 3, len(MANY) + 3)
    for data_set in (None, "b"):
        assert spent(quick, data_set) == spent(whole, data_set)
        assert epsilon(spent(quick, data_set), 1e-5) == epsilon(spent(whole, data_set), 1e-5)
    assert [one for one in quick if isinstance(one.release, Unprotected)] == [MANY[3]]


def test_a_total_goes_on_over_starts_and_counts_what_a_refusal_has_seen(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    for number in range(EVERY - 1):
        first.record(MANY[number % len(MANY)], lambda _: None)

    def refuse(_: Sequence[LedgerEntry]) -> None:
        raise PrivacyError("no")

    # Another process has seen those entries and could not continue; what it writes next has them in its total.
    with pytest.raises(PrivacyError, match="no"):
        second.record(entry(), refuse)
    second.record(entry(), lambda _: None)
    assert (tmp_path / "a.ledger-total").exists()
    assert spent(opened(tmp_path).look(), None) == spent(Ledger(tmp_path / "ledger.sqlite").look(), None)


@pytest.mark.parametrize("hand", ["gone", "a byte", "cut", "of no use"])
def test_a_total_that_is_damaged_is_passed_over(kept: Path, hand: str) -> None:
    path = kept / "a.ledger-total"
    raw = path.read_bytes()
    try:
        if hand == "gone":
            path.unlink()
        else:
            path.write_bytes({"a byte": raw[:200] + b"!" + raw[201:], "cut": raw[:-3], "of no use": b"{}\n"}[hand])
        assert len(opened(kept).look()) == 2 * EVERY + 3
    finally:
        path.write_bytes(raw)


def test_a_total_of_another_ledger_is_not_added_to_this_one(kept: Path, tmp_path: Path) -> None:
    opened(tmp_path).record(entry(), lambda _: None)
    (tmp_path / "a.ledger-total").write_bytes((kept / "a.ledger-total").read_bytes())
    # It is about a later entry than this site has written.
    assert opened(tmp_path).look() == (entry(),)
    witness = witness_of(tmp_path, "a")
    for _ in range(2 * EVERY + 5):
        Ledger(tmp_path / "ledger.sqlite", witness).record(entry(), lambda _: None)
    with pytest.raises(PrivacyError, match=f"no longer holds entry {2 * EVERY}"):
        opened(tmp_path).look()


def test_sums_of_whole_collaborators_are_counted_together(tmp_path: Path) -> None:
    total = LedgerTotal(tmp_path / "total", EVERY)
    noised = SkellamRelease("training", 3.0, 2.0, 5.0, 1)
    total.count([entry(noised), entry(noised), entry(STEP)])
    total.note(EVERY, bytes(32))
    found = LedgerTotal(tmp_path / "total", EVERY).load(EVERY)
    assert found == ((EVERY, bytes(32)), (entry(SkellamRelease("training", 3.0, 2.0, 5.0, 2)), entry(STEP)))
