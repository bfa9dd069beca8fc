"""A record while it is written: kills, full disks, second writers, and hands of others."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import AT_CONNECTION, Keeper, Occasion
from fedfair.audit.reader import MAX_TORN_BYTES, Torn
from fedfair.audit.segments import earlier_path
from fedfair.cli.audit import app
from fedfair.errors import AuditError
from fedfair.identity.signing import format_signing_key
from fedfair.statistics.table import Purpose
from tests.audit.record_makers import KEY, OTHER_KEY, OTHER_PLAN, PLAN, ROUNDS, kept, ownership, read, ticking
from tests.audit.test_audit_segments import ALWAYS, said, write
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

FOURTH = Occasion(Purpose.EVALUATION, 4, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def opened(path: Path) -> Keeper:
    return Keeper(path, ownership(), PLAN, ticking())


def test_each_round_is_signed_before_the_next_one_begins_and_the_end_where_it_ends(tmp_path: Path) -> None:
    content = kept(tmp_path / "a.jsonl")
    kinds = ["".join(word[:1] for word in (line.split(b'"')[5].decode(),)) for line in content.splitlines()]
    assert "".join(kinds) == "om" + "s" + "mmms" * 3


def test_a_record_goes_on_where_it_stands_over_starts_and_plans(tmp_path: Path) -> None:
    path = tmp_path / "egress" / "a.jsonl"
    first, both = kept(path), kept(path, ROUNDS[:3], plan=OTHER_PLAN)
    assert both.startswith(first)
    found = read(both)
    assert (found.total.messages, found.closed) == (len(ROUNDS) + 3, True)
    assert {group.plan for group in found.groups} == {PLAN, OTHER_PLAN}
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_process_that_is_killed_loses_no_entry_and_the_next_one_signs_what_it_left(path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from tests.audit.record_makers import *\n"
        "keeper = Keeper(Path(sys.argv[1]), ownership(), PLAN, ticking())\n"
        "for said in ROUNDS: keeper.message(*said)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    here = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    assert (
        subprocess.run([sys.executable, "-c", code, path], env=here, timeout=PATIENCE, check=False).returncode
        == -9
    )
    left = read(path.read_bytes())
    assert (left.total.messages, left.unsigned, left.closed, left.tail) == (len(ROUNDS), 3, False, b"")
    keeper = opened(path)
    keeper.message(b"again", MessageKind.INTRODUCTION, AT_CONNECTION)
    assert read(path.read_bytes()).unsigned == 1, "what the killed process had left is signed first"
    keeper.close()
    assert read(path.read_bytes()).closed


@given(length=st.integers(1, 1000), noise=st.booleans())
@settings(max_examples=25, deadline=None)
def test_what_is_left_of_a_line_is_stated_by_the_next_process_and_never_hidden(
    tmp_path_factory: pytest.TempPathFactory, length: int, noise: bool
) -> None:
    path = tmp_path_factory.mktemp("torn") / "a.jsonl"
    lines = kept(path).splitlines(keepends=True)
    torn = lines[6][: min(length, len(lines[6]) - 1)] + (b"\0\n\xff" * 50 if noise else b"")
    intact = b"".join(lines[:6])
    path.write_bytes(intact + torn)
    before = read(path.read_bytes())
    assert (before.entries, before.tail) == (6, torn)
    opened(path).close()
    content = path.read_bytes()
    assert content.startswith(intact + torn + b"~\n"), "nothing is taken away"
    found = read(content)
    assert (found.torn, found.entries) == ([Torn(6, len(torn), hashlib.sha256(torn).hexdigest())], 8)
    # Other bytes in their place, or none, are noticed: they are on the record now.
    behind = content[len(intact) + len(torn) :]
    for other in (torn[:-1] + b"?", b"", torn + b" "):
        with pytest.raises(AuditError, match="entry 7 is wrong"):
            read(intact + other + behind)


def test_more_than_an_interrupted_writer_can_leave_is_refused(path: Path) -> None:
    path.write_bytes(kept(path) + bytes(MAX_TORN_BYTES + 1))
    with pytest.raises(AuditError, match="entry 16 is wrong"):
        opened(path)


def test_nothing_is_written_onto_a_record_that_was_changed(path: Path) -> None:
    changed = kept(path).replace(b'"bytes":102', b'"bytes":103')
    path.write_bytes(changed)
    with pytest.raises(AuditError, match=r"a\.jsonl: entry 5 is wrong: .*; nothing is sent without it"):
        opened(path)
    assert path.read_bytes() == changed


@pytest.mark.parametrize(
    "owner",
    [ownership("clinic-b"), ownership(keeper="aggregator"), ownership(key=OTHER_KEY)],
    ids=["another site", "the aggregator", "another key"],
)
def test_a_record_of_somebody_else_is_not_continued(path: Path, owner: object) -> None:
    before = kept(path)
    with pytest.raises(AuditError, match="is the record of clinic-a of 'heart'") as caught:
        Keeper(path, owner, PLAN, ticking())  # type: ignore[arg-type]  # an Ownership, as pytest hides
    assert "egress" in caught.value.remedy
    assert path.read_bytes() == before


def test_a_second_writer_is_refused_while_the_first_has_the_file(tmp_path: Path) -> None:
    keeper = opened(tmp_path / "a.jsonl")
    words = rf"a\.jsonl is in use by process {os.getpid()}: this site already runs here"
    with pytest.raises(AuditError, match=words):
        opened(tmp_path / "a.jsonl")
    (tmp_path / "link.jsonl").symlink_to("a.jsonl")
    with pytest.raises(AuditError, match="this site already runs here"):
        opened(tmp_path / "link.jsonl")
    keeper.message(b"still", MessageKind.VOTE, FOURTH)
    keeper.close()
    opened(tmp_path / "a.jsonl").close()


def test_a_mirror_that_is_in_use_is_told_as_the_aggregator_s(tmp_path: Path) -> None:
    path, owner = tmp_path / "a.jsonl", ownership(keeper="aggregator")
    keeper = Keeper(path, owner, PLAN, ticking())
    with pytest.raises(AuditError, match=f"in use by process {os.getpid()}: an aggregator already runs here"):
        Keeper(path, owner, PLAN, ticking())
    keeper.close()


@pytest.mark.parametrize("place", ["null", "pipe", "folder", "below"])
def test_what_keeps_no_record_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    path = {"null": Path("/dev/null"), "below": tmp_path / "file" / "a.jsonl"}.get(place, tmp_path / place)
    with pytest.raises(AuditError, match="nothing is sent without it"):
        opened(path)


def test_a_full_disk_stops_everything_and_the_next_start_says_what_was_torn(path: Path) -> None:
    keeper = opened(path)
    keeper.message(*ROUNDS[0])
    whole = path.read_bytes()
    with file_limit(len(whole) + 100), pytest.raises(AuditError, match="only a part of an entry"):
        keeper.message(b"one", MessageKind.INTRODUCTION, AT_CONNECTION)
    # The disk has room again, but this writer no longer knows what is on it.
    with pytest.raises(AuditError, match="an earlier entry could not be written"):
        keeper.message(b"two", MessageKind.INTRODUCTION, AT_CONNECTION)
    keeper.close()
    left = path.read_bytes()
    assert left.startswith(whole)
    assert len(left) == len(whole) + 100
    opened(path).close()
    found = read(path.read_bytes())
    assert (found.total.messages, [torn.length for torn in found.torn]) == (1, [100])


def test_a_disk_without_room_for_a_byte_is_named(tmp_path: Path) -> None:
    keeper, length = opened(tmp_path / "a.jsonl"), (tmp_path / "a.jsonl").stat().st_size
    with file_limit(length), pytest.raises(AuditError, match="File too large; nothing is sent"):
        keeper.message(*ROUNDS[0])
    keeper.close()


@pytest.mark.parametrize("hand", ["removed", "cut", "longer"])
def test_a_file_that_another_program_touches_while_it_is_open_is_not_written_on(path: Path, hand: str) -> None:
    keeper = opened(path)
    keeper.message(*ROUNDS[0])
    if hand == "removed":
        path.unlink()
    else:
        os.truncate(path, 10 if hand == "cut" else 10_000)
    with pytest.raises(AuditError, match="another program removed it or changed its length"):
        keeper.message(*ROUNDS[1])
    keeper.close()


@contextmanager
def file_limit(length: int) -> Iterator[None]:
    """Let no file of this process grow beyond a length, as a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---- `fedfair audit` on a record of several files: all of them are read, whatever was asked

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
