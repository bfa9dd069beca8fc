"""`fedfair privacy show`: what a policy maker reads, and what a program does."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collaborator.ledger import Ledger, witness_of
from fedfair.cli.commands import app
from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.releases import GaussianRelease, Unprotected
from fedfair.privacy.statement import ZERO_OUT, at_least

STEP = GaussianRelease("training", 8.0, 1.0, 5, clip=1.0)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    file = tmp_path / "collaborator.yaml"
    file.write_text("collaborator: clinic-a\nbudget: {epsilon: 4.0, delta: 1.0e-6}\nledger: kept/ledger.sqlite\n")
    return file


def record(file: Path, release: Written) -> None:
    origin = Origin("clinic-a", "heart", "sha256:" + "a" * 64, None)
    Ledger(file.parent / "kept" / "ledger.sqlite").record(
        LedgerEntry("2031-05-04T10:11:12+00:00", origin, release), lambda _: None
    )


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(
        app, ["privacy", "show", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.output


def test_the_releases_the_sentence_and_what_is_left_are_shown(site: Path) -> None:
    record(site, STEP)
    spent = epsilon([STEP], 1e-6)
    text = shown("-c", str(site))
    for words in ("all records", "heart", "aaaaaaaaaaaa", "training", "2031-05-04"):
        assert words in text
    unit = f"one record of collaborator clinic-a ({ZERO_OUT})"
    assert f"(ε={at_least(spent)}, δ=1e-06) DP, unit = {unit}" in text
    assert f"Budget: epsilon 4 at delta 1e-06; {4 - spent:.4g} is left." in text


def test_a_program_reads_the_same(site: Path) -> None:
    record(site, STEP)
    told = json.loads(shown("-c", str(site), "--json", "--delta", "1e-4"))
    assert (told["format"], told["delta"], told["budget"]) == (
        "fedfair/ledger/1", 1e-4, {"epsilon": 4.0, "delta": 1e-6},
    )  # fmt: skip
    (one,) = told["data_sets"]
    assert one["epsilon"] == pytest.approx(epsilon([STEP], 1e-4))
    assert one["left"] == pytest.approx(4.0 - epsilon([STEP], 1e-6))
    assert (
        one["releases"][0] | {"kind": "gaussian", "noise_multiplier": 8.0, "steps": 5, "entries": 1}
        == one["releases"][0]
    )
    assert (one["name"], one["refusal"]) == (None, None)


def test_no_epsilon_is_printed_after_a_release_without_noise(site: Path) -> None:
    record(site, STEP)
    record(site, Unprotected("evaluation"))
    text = shown("-c", str(site))
    assert "no epsilon can be stated" in text
    assert "NONE" in text
    assert "what is left is unknown" in text
    assert "ε=" not in text
    (one,) = json.loads(shown("--ledger", str(site.parent / "kept" / "ledger.sqlite"), "--json"))["data_sets"]
    assert (one["epsilon"], one["statement"], one["left"]) == (None, None, None)


def test_an_older_copy_of_a_site_s_own_ledger_is_not_summed_up_as_if_it_were_whole(site: Path) -> None:
    path, witness = site.parent / "kept" / "ledger.sqlite", witness_of(site.parent / "state", "clinic-a")
    record(site, STEP)
    older = path.read_bytes()
    origin = Origin("clinic-a", "heart", "sha256:" + "a" * 64, None)
    Ledger(path, witness).record(LedgerEntry("2031-05-04T10:11:13+00:00", origin, STEP), lambda _: None)
    assert "ε=" in shown("-c", str(site))
    path.write_bytes(older)
    told = CliRunner().invoke(app, ["privacy", "show", "-c", str(site)])
    assert isinstance(told.exception, PrivacyError)
    assert "no longer holds entry 2" in told.exception.message
    # A user who names a file asks about that file, and not about a site.
    assert "ε=" in shown("--ledger", str(path))


def test_ledgers_that_are_missing_broken_or_hostile_are_shown_safely(site: Path) -> None:
    runner = CliRunner()
    missing = runner.invoke(app, ["privacy", "show", "-c", str(site)])
    assert isinstance(missing.exception, PrivacyError)
    assert "there is no ledger here" in missing.exception.message
    assert not (site.parent / "kept").exists()
    (site.parent / "kept").mkdir()
    (site.parent / "kept" / "ledger.sqlite").write_text("")
    broken = runner.invoke(app, ["privacy", "show", "-c", str(site)])
    assert isinstance(broken.exception, PrivacyError)
    assert "it is empty" in broken.exception.message
    (site.parent / "kept" / "ledger.sqlite").unlink()
    origin = Origin("clinic-a", "heart", "sha256:" + "a" * 64, "\x1b[2Jwiped")
    record(site, STEP)
    Ledger(site.parent / "kept" / "ledger.sqlite").record(LedgerEntry("2031", origin, STEP), lambda _: None)
    text = shown("-c", str(site))
    assert "wiped" in text
    assert "\x1b[2J" not in text
