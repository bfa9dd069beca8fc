"""`fedfair audit` on the files of a real run: three sites, an aggregator, masked sums."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collaborator.preflight import check_site
from fedfair.cli.audit import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import AuditError, IdentityError
from fedfair.wire.calling import Address
from tests.interop.federation_kit import NAMES, Federation, play
from tests.plans import small_plan
from tests.site_reading import read_site

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run of two rounds that has ended."""
    plan = small_plan(rounds=2, protection={"mode": "malicious", "most_records": 512})
    workspace = prepare(tmp_path_factory.mktemp("run"), plan)

    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace


@pytest.fixture
def folder(finished: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run that a test may spoil, as the present folder."""
    for name in ("egress", "received", "plan", "cert"):
        shutil.copytree(finished.folder / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    result = RUNNER.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str) -> str:
    with pytest.raises(AuditError) as caught:
        RUNNER.invoke(app, list(words), catch_exceptions=False)
    assert caught.value.remedy
    return caught.value.message


def test_every_record_of_a_run_verifies_and_fits_its_mirror(folder: Path) -> None:
    for name in NAMES:
        found = json.loads(
            run(
                "verify",
                f"egress/{name}.jsonl",
                "--mirror",
                f"received/{name}.jsonl",
                "--json",
                "-p",
                "plan/plan.yaml",
            )
        )
        assert (found["ok"], found["closed"], found["unsigned_entries"], found["interruptions"]) == (
            True,
            True,
            0,
            [],
        )
        assert found["mirror"]["agreed"] == {"messages": found["messages"], "bytes": found["bytes"]}
        assert found["mirror"]["lost"] == found["mirror"]["foreign"] == {"messages": 0, "bytes": 0}
        # The connection, standardisation, the evaluation at round 0, two rounds, the last one, the statement.
        assert found["signatures"] == 7
    told = run("verify", "egress/clinic-a.jsonl", "--mirror", "received/clinic-a.jsonl")
    assert "every message that is recorded arrived" in told
    assert "warning" not in told
    mirror = run("verify", "received/clinic-a.jsonl")
    assert "what clinic-a of 'heart' sent, as it arrived" in mirror
    assert run("verify", "egress/clinic-a.jsonl", "--quiet") == ""
    assert {path.stat().st_mode & 0o077 for path in (folder / "egress").iterdir()} == {0}


def test_what_left_is_shown_in_words_and_adds_up(folder: Path) -> None:
    lines = (folder / "egress" / "clinic-b.jsonl").read_text().splitlines()
    messages = [entry for entry in map(json.loads, lines) if entry["kind"] == "message"]
    shown = run("show", "egress/clinic-b.jsonl")
    for words in ("What clinic-b of 'heart' has sent", "masked vector", "standardisation", "evaluation"):
        assert words in shown
    assert "masked vector: a piece of this site's contribution, noise without the masks of the others" in shown
    assert "IN THE CLEAR" not in shown
    assert f"{sum(entry['bytes'] for entry in messages):,}" in shown
    found = json.loads(run("show", "egress/clinic-b.jsonl", "--json"))
    assert found["messages"] == sum(group["messages"] for group in found["groups"]) == len(messages)
    assert found["bytes"] == sum(group["bytes"] for group in found["groups"])
    assert len(run("show", "egress/clinic-b.jsonl", "--by-round").splitlines()) > len(shown.splitlines())


def test_a_record_that_somebody_changed_is_refused_with_the_entry(folder: Path) -> None:
    path = folder / "egress" / "clinic-a.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[4].replace(b'"round":0', b'"round":1'), *lines[5:]]))
    assert "egress/clinic-a.jsonl: entry 5 is wrong: its chain value" in refused("verify", "egress/clinic-a.jsonl")
    assert "entry 5 is wrong" in refused("show", "egress/clinic-a.jsonl")
    path.write_bytes(b"")
    assert "the record is empty" in refused("show", "egress/clinic-a.jsonl")


def test_a_record_without_its_end_is_refused_by_mirror_and_checkpoint(folder: Path) -> None:
    path = folder / "egress" / "clinic-a.jsonl"
    earlier = json.loads(run("verify", "egress/clinic-a.jsonl", "--json"))["checkpoint"]
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines[:-1]) if b'"kind":"signed"' in line)
    path.write_bytes(b"".join(lines[: last + 1]))
    assert "or the end was cut off" in RUNNER.invoke(app, ["verify", "egress/clinic-a.jsonl"]).output
    missing = refused("verify", "egress/clinic-a.jsonl", "--mirror", "received/clinic-a.jsonl")
    assert f"{len(lines) - last - 2} messages arrived in the name of clinic-a" in missing
    assert "its end was cut off" in refused("verify", "egress/clinic-a.jsonl", "--checkpoint", earlier)


def test_a_record_signed_by_somebody_else_is_refused_with_both_keys(folder: Path) -> None:
    shutil.copy(folder / "cert" / "clinic-b" / "signing.pub", folder / "other.pub")
    other, own = (
        (folder / "other.pub").read_text().strip(),
        (folder / "cert/clinic-a/signing.pub").read_text().strip(),
    )
    assert refused("verify", "egress/clinic-a.jsonl", "--key", "other.pub") == (
        f"egress/clinic-a.jsonl is signed with {own}, the key of clinic-a is {other}"
    )
    assert other in refused("verify", "egress/clinic-a.jsonl", "--key", other)
    mirror = ("verify", "egress/clinic-a.jsonl", "--mirror", "received/clinic-a.jsonl")
    assert "the key of aggregator is" in refused(*mirror, "--mirror-key", "other.pub")
    shutil.rmtree(folder / "cert")
    assert "this folder does not tell which key clinic-a has" in refused("verify", "egress/clinic-a.jsonl")
    assert "NOT checked" in run(*mirror, "--key", own)
    (folder / "long.pub").write_bytes(bytes(2000))
    with pytest.raises(IdentityError, match="so it is not a key"):
        run("verify", "egress/clinic-a.jsonl", "--key", "long.pub")


def test_the_record_of_another_site_is_no_mirror(folder: Path) -> None:
    words = refused("verify", "egress/clinic-a.jsonl", "--mirror", "received/clinic-b.jsonl")
    assert "the mirror is about clinic-b of 'heart'" in words
    assert "is a mirror itself" in refused(
        "verify", "received/clinic-a.jsonl", "--mirror", "received/clinic-a.jsonl"
    )
    assert folder.exists()


def test_wrong_usage_is_told_apart_from_a_wrong_record(folder: Path) -> None:
    result = RUNNER.invoke(app, ["verify", "egress/clinic-a.jsonl", "--checkpoint", "12"])
    assert result.exit_code == 2
    assert "is not ENTRY:CHAIN" in result.output
    assert RUNNER.invoke(app, ["verify"]).exit_code == 2
    assert folder.exists()


def test_a_record_whose_last_lines_were_cut_is_noticed_by_verify_and_by_check(
    finished: Workspace, tmp_path: Path
) -> None:
    copy = tmp_path / "moved"
    shutil.copytree(finished.folder, copy)
    record, head = copy / "egress" / "clinic-a.jsonl", copy / "state" / "clinic-a.egress-head"
    lines = record.read_bytes().splitlines(keepends=True)
    known = ["--cert-folder", str(copy / "cert"), "--plan", str(copy / "plan" / "plan.yaml")]
    given = ["verify", str(record), "--head", str(head), *known]
    assert RUNNER.invoke(app, given).exit_code == 0
    # Cut behind a signature, where neither the chain nor a signature can show it.
    signed = [number for number, line in enumerate(lines, 1) if b'"signed"' in line]
    record.write_bytes(b"".join(lines[: signed[-2]]))
    told = RUNNER.invoke(app, given)
    assert isinstance(told.exception, AuditError)
    assert f"ends with entry {signed[-2]}, it once had {len(lines)}: its end was cut off" in told.exception.message

    original = finished.folder / "egress" / "clinic-a.jsonl"
    whole = original.read_bytes()
    original.write_bytes(record.read_bytes())
    try:
        beside = RUNNER.invoke(app, ["verify", str(original), *known])
        assert isinstance(beside.exception, AuditError)
        assert "its end was cut off" in beside.exception.message
        site = read_site("clinic-a", finished.folder / "clinic-a.yaml", finished.plan, None)
        items = {
            item.name: item for item in check_site(site, lambda: Address("localhost", 1), finished.folder / "logs")
        }
        assert not items["egress record"].passed
        assert "its end was cut off" in items["egress record"].detail
        assert original.read_bytes() == record.read_bytes()
    finally:
        original.write_bytes(whole)
