"""The total of a ledger: a start reads what is new, and nothing that it says can hide what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from collaborator.ledger import Ledger, LedgerTotal, witness_of
from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.entries import LedgerEntry
from fedfair.privacy.releases import GaussianRelease, SkellamRelease, Unprotected, combined
from tests.actors.ledger_makers import LOOK, STEP, entry

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
    assert len(whole) == 2 * EVERY + 3
    assert len(quick) == len(MANY) + 3
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

    # Another process has seen those entries and could not go on; what it writes next has them in its total.
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
