"""`fedfair audit` on a record of several files: all of them are read, whatever was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.audit.keeper import Keeper
from fedfair.audit.segments import earlier_path
from fedfair.cli.audit import app
from fedfair.errors import AuditError
from fedfair.identity.signing import format_signing_key
from tests.audit.record_makers import KEY, PLAN, ownership, ticking
from tests.audit.test_audit_segments import ALWAYS, said, write

RUNNER = CliRunner()
PUBLIC = format_signing_key(KEY.public_key())


def run(*words: str) -> str:
    result = RUNNER.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "egress" / "clinic-a.jsonl", 1, 5)
    mirror = Keeper(tmp_path / "mirror.jsonl", ownership(keeper="aggregator"), PLAN, ticking(), None, ALWAYS)
    for one in said(1, 5):
        mirror.message(*one)
    mirror.close()
    return tmp_path / "egress" / "clinic-a.jsonl"


def test_show_and_verify_read_every_file_of_the_record_and_of_its_mirror(record: Path) -> None:
    shown = json.loads(run("show", str(record), "--json"))
    assert (shown["messages"], {group["round"] for group in shown["groups"]}) == (10, {1, 2, 3, 4, 5})
    words = ("verify", str(record), "--key", PUBLIC, "--json")
    verified = json.loads(run(*words))
    assert (verified["ok"], verified["entries"]) == (True, shown["entries"])
    keys = ("--mirror", "mirror.jsonl", "--mirror-key", PUBLIC)
    compared = json.loads(run(*words, *keys))["mirror"]
    assert (compared["agreed"]["messages"], compared["foreign"]["messages"]) == (10, 0)
    run(*words, "--checkpoint", str(verified["checkpoint"]))


@pytest.mark.parametrize("hand", ["changed", "gone"])
def test_verify_names_an_earlier_file_that_was_changed_or_is_gone(record: Path, hand: str) -> None:
    second = earlier_path(record, 2)
    if hand == "gone":
        second.unlink()
    else:
        second.write_bytes(second.read_bytes().replace(b'"bytes":3', b'"bytes":4', 1))
    words = r"clinic-a\.jsonl\.000002 is missing" if hand == "gone" else "entry 6 is wrong"
    with pytest.raises(AuditError, match=words):
        run("verify", str(record), "--key", PUBLIC)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run("show", str(tmp_path / "none.jsonl"))
