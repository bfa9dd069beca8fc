"""What a ledger comes to, and when nothing is said."""

from dataclasses import replace

import pytest

from fedfair.privacy.accounting import epsilon
from fedfair.privacy.budget import Budget
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.releases import GaussianRelease, SkellamRelease, Unprotected
from fedfair.privacy.spending import data_sets, spending
from fedfair.privacy.statement import at_least

STEP = GaussianRelease("training", 8.0, 1.0, 1, clip=1.0)
LOOK = GaussianRelease("evaluation", 20.0, 1.0, 1)


def entry(release: Written, data_set: str | None = None, digit: str = "a", day: int = 4) -> LedgerEntry:
    return LedgerEntry(
        f"2031-05-{day:02}T10:11:12+00:00", Origin("clinic-a", "heart", f"sha256:{digit * 64}", data_set), release
    )


def test_releases_alike_are_one_line_and_all_are_in_the_sentence() -> None:
    entries = [
        entry(STEP), entry(replace(STEP, steps=4), day=5), entry(LOOK),
        entry(replace(STEP, clip=0.5), digit="b", day=6),
    ]  # fmt: skip
    found = spending(entries, None, 1e-5, Budget(8.0))
    assert [(line.release, line.entries, line.first[:10], line.last[:10]) for line in found.lines] == [
        (replace(STEP, steps=5), 2, "2031-05-04", "2031-05-05"),
        (LOOK, 1, "2031-05-04", "2031-05-04"),
        (replace(STEP, clip=0.5), 1, "2031-05-06", "2031-05-06"),
    ]
    spent = epsilon([replace(STEP, steps=6), LOOK], 1e-5)
    assert found.spent == pytest.approx(spent, abs=1e-9)
    assert found.left == pytest.approx(8.0 - spent, abs=1e-9)
    assert found.refusal == ""
    for words in (
        f"(ε={at_least(spent)}, δ=1e-05) DP, unit = one record of collaborator clinic-a",
        "clip=1, steps=5",
        "clip=0.5, steps=1",
    ):
        assert words in found.statement


def test_settings_that_were_tried_cost_as_much_as_the_one_that_was_kept() -> None:
    settings = {"a": 6.0, "b": 7.0, "c": 8.0}
    tried = [
        entry(replace(STEP, steps=10, noise_multiplier=noise), digit=plan) for plan, noise in settings.items()
    ]
    together, alone = spending(tried, None, 1e-5, None), spending(tried[-1:], None, 1e-5, None)
    assert together.spent == pytest.approx(epsilon([one.release for one in tried], 1e-5), abs=1e-9)
    assert together.spent > 1.5 * alone.spent


@pytest.mark.parametrize("data_set", [None, "old"])
def test_nothing_is_said_of_records_that_were_once_released_without_noise(data_set: str | None) -> None:
    entries = [entry(STEP, "old"), entry(Unprotected("evaluation"), data_set, digit="b", day=9)]
    found = spending(entries, "old", 1e-5, Budget(8.0))
    assert (found.spent, found.left, found.statement) == (None, None, "")
    assert found.refusal == (
        "no epsilon can be stated: something about collaborator clinic-a in data set 'old' was released outside "
        "the accountant: the evaluation sums without noise, on 2031-05-09, "
        "under plan sha256:bbbbbbbbbbbb of 'heart'"
    )


@pytest.mark.parametrize("only", [Unprotected("training"), SkellamRelease("training", 90.0, 30.0, 1e4, 4)])
def test_what_was_released_without_noise_for_records_alone_is_not_called_nothing(only: Written) -> None:
    found = spending([entry(only)], None, 1e-5, None)
    assert "something about collaborator clinic-a was released outside the accountant" in found.refusal
    assert "nothing was released" not in found.refusal


def test_names_keep_data_sets_apart_and_records_without_a_name_add_to_all() -> None:
    entries = [entry(STEP, "new"), entry(Unprotected("training"), "old"), entry(LOOK)]
    assert data_sets(entries) == ("new", "old", None)
    assert data_sets(entries[:2]) == ("new", "old")
    assert data_sets([]) == (None,)
    new = spending(entries, "new", 1e-5, None)
    assert new.spent == pytest.approx(epsilon([STEP, LOOK], 1e-5), abs=1e-9)
    assert spending(entries, "old", 1e-5, None).spent is None
    assert spending(entries, None, 1e-5, None).spent is None


def test_an_empty_ledger_and_one_of_hopeless_noise_say_nothing() -> None:
    nothing = spending([], None, 1e-5, Budget(8.0))
    assert (nothing.statement, nothing.left) == ("", 8.0)
    assert "nothing was released about the records of this site" in nothing.refusal
    # A site does not know how many honest shares there were; the aggregator's result states what they are worth.
    sums = spending([entry(SkellamRelease("training", 100.0, 10.0, 1e4, 3))], None, 1e-5, Budget(8.0))
    assert (sums.statement, sums.lines[0].entries) == ("", 1)
    assert "the training sums under noise for whole collaborators only" in sums.refusal
