"""A workspace after a short simulated run of a plan that pins its sites' keys, and a passport of its model."""

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.identity.certificate import parse_participant
from fedfair.identity.store import create_site, load_signing_key
from fedfair.plan.public_keys import format_public_key
from fedfair.workspace.create import create_workspace
from tests.drawn_once import drawn_once, undrawn
from tests.passport.words import PROVIDER, SITE

__all__ = ["drawn_once", "undrawn"]

SITES = ("clinic-a", "clinic-b")


def command(*words: str) -> str:
    """Return what a command prints; raise what it raises."""
    done = CliRunner().invoke(app, [*words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a finished run, keys of all, a certificate, words, and a signed passport."""
    folder = tmp_path_factory.mktemp("study")
    create_workspace(folder, "heart", "breast-cancer")
    keys = {}
    for name in ("aggregator", *SITES):
        create_site(folder / "cert", parse_participant("heart", name))
        keys[name] = load_signing_key(folder / "cert", name).public_key().public_bytes_raw()
    plan = folder / "plan" / "plan.yaml"
    short = plan.read_text().replace("rounds: 100", "rounds: 3")
    plan.write_text(short.replace("  measure: excess", "  reference: {rounds: 3}\n  measure: excess"))
    roster = "".join(f'{name}: "{format_public_key(keys[name])}"\n' for name in SITES)
    (folder / "plan" / "roster.yaml").write_text(roster)
    (folder / "passport.yaml").write_text(PROVIDER)
    (folder / "data-description.yaml").write_text(SITE)
    before = Path.cwd()
    os.chdir(folder)
    try:
        command("simulate", "-p", "plan/plan.yaml", "--output", "result.json", "--save", "save", "--quiet")
        command("plan", "freeze")
        command("certificate", "--quiet")
        command("data", "describe")
        command("passport", "create", "--with-sums")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of that workspace."""
    copy = tmp_path / "study"
    shutil.copytree(finished, copy)
    monkeypatch.chdir(copy)
    return copy
