"""What carries messages to a computing process: who may speak, what is refused, and what a start leaves behind."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collaborator.computing import confinement
from collaborator.computing.carrier import (
    BLOCK_BYTES,
    SERVICE,
    WORKER,
    Blocks,
    Channel,
    EndedError,
    FolderBlocks,
    SealedBlocks,
    SocketBlocks,
    new_secret,
    taken_secret,
)
from collaborator.computing.confinement import NO_CALLS, NO_FILES, Allowed, confine, readable
from collaborator.computing.launching import PREFIX, _filled, _remove_old, environment
from fedfair.errors import PlanError, RemoteProtocolError, UnreachableError
from fedfair.policy.site_config import load_site_config

SECRET = bytes(32)


@contextmanager
def at_once(work: Callable[[], object]) -> Iterator[list[object]]:
    """Do something in a thread meanwhile; yield the list of what it returns or raises."""
    found: list[object] = []

    def worked() -> None:
        try:
            found.append(work())
        except (EndedError, RemoteProtocolError) as fault:
            found.append(fault)

    thread = threading.Thread(target=worked, daemon=True)
    thread.start()
    yield found
    thread.join()


@pytest.fixture
def ends() -> Iterator[tuple[Blocks, Blocks]]:
    one, other = socket.socketpair()
    yield SocketBlocks(one), SocketBlocks(other)
    for end in (one, other):
        end.close()


def sealed(one: Blocks, other: Blocks) -> tuple[SealedBlocks, SealedBlocks]:
    with at_once(lambda: SealedBlocks(other, SECRET, WORKER)) as found:
        service = SealedBlocks(one, SECRET, SERVICE)
    assert isinstance(found[0], SealedBlocks)
    return service, found[0]


@pytest.mark.parametrize("way", ["socket", "sealed socket", "sealed folder"])
def test_messages_of_every_length_arrive_as_they_were_sent(
    way: str, ends: tuple[Blocks, Blocks], tmp_path: Path
) -> None:
    if way == "sealed folder":
        ends = FolderBlocks(tmp_path, SERVICE), FolderBlocks(tmp_path, WORKER)
    one, other = (Channel(end) for end in (ends if way == "socket" else sealed(*ends)))
    lengths = (0, 1, BLOCK_BYTES - 9, BLOCK_BYTES - 8, BLOCK_BYTES, 2 * BLOCK_BYTES + 5)
    for length in lengths:
        message = os.urandom(length)
        with at_once(lambda: bytes(other.receive(1 << 24))) as found:
            one.send([message[:7], message[7:]])
        assert found == [message]
    assert list(tmp_path.iterdir()) == []


def test_who_does_not_know_the_secret_of_a_start_is_nobody(ends: tuple[Blocks, Blocks]) -> None:
    one, other = ends
    with at_once(lambda: SealedBlocks(other, bytes(31) + b"\1", WORKER)) as found:
        with pytest.raises(RemoteProtocolError, match="not sealed with the keys of this start"):
            SealedBlocks(one, SECRET, SERVICE)
        one.close()
    assert isinstance(found[0], RemoteProtocolError | EndedError)


def test_a_block_that_is_changed_moved_or_sent_again_is_refused(ends: tuple[Blocks, Blocks]) -> None:
    service, worker = sealed(*ends)
    service.write(b"one")
    block = ends[1].read()
    for wrong in (block, bytes(len(block)), block[:-1] + bytes([block[-1] ^ 1])):
        ends[0].write(wrong)
    assert worker.read() == b"one"  # as it was
    with pytest.raises(RemoteProtocolError, match="not sealed"):
        worker.read()


def test_a_message_or_block_that_is_too_long_is_refused_before_it_is_read(ends: tuple[Blocks, Blocks]) -> None:
    one, other = ends
    Channel(one).send([bytes(1000)])
    with pytest.raises(RemoteProtocolError, match="a message of 1000 bytes; at most 999"):
        Channel(other).receive(999)
    raw, end = socket.socketpair()
    raw.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(RemoteProtocolError, match="a block of 4294967295 bytes"):
        SocketBlocks(end).read()
    raw.close()
    end.close()


def test_a_link_in_a_shared_folder_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    folder, key = tmp_path / "shared", tmp_path / "key"
    folder.mkdir()
    key.write_text("a key")
    (folder / "worker-0").symlink_to(key)
    service = FolderBlocks(folder, SERVICE)
    with pytest.raises(EndedError, match="the shared folder cannot be read"):
        service.read()
    (folder / "service-0").symlink_to(key)
    service.write(b"a block")
    assert key.read_text() == "a key"


def test_a_folder_whose_other_side_has_gone_has_ended(tmp_path: Path) -> None:
    with pytest.raises(EndedError, match="the other process has ended"):
        FolderBlocks(tmp_path, SERVICE, lambda: False).read()


def test_a_secret_is_its_owners_and_is_taken_once(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = new_secret(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert taken_secret(file) == secret
    with pytest.raises(UnreachableError, match="cannot be read"):
        taken_secret(file)


def test_a_process_has_no_variable_that_may_be_a_secret() -> None:
    whole = {"PATH": "/bin", "FEDFAIR_PASSPHRASE": "x", "AWS_SECRET": "x", "SLURM_JOB_ID": "7", "DB": "own"}
    found = environment(whole, ("DB",), Path("/scratch"))
    assert whole.keys() & found.keys() == {"PATH", "SLURM_JOB_ID", "DB"}


def test_a_template_takes_the_command_as_words_or_as_one() -> None:
    command = ["python", "-m", "a b"]
    assert list(_filled("srun --gres=gpu:1 {command}", command)) == ["srun", "--gres=gpu:1", *command]
    assert list(_filled("sh -c 'module load x; {command}'", command))[2] == "module load x; python -m 'a b'"


def test_what_a_start_left_that_is_over_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (f"{PREFIX}999999999-a", f"{PREFIX}{os.getpid()}-b", "mine"):
        (tmp_path / name).mkdir()
    _remove_old(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{PREFIX}{os.getpid()}-b", "mine"}


def test_a_folder_with_something_hidden_is_read_around_it(tmp_path: Path) -> None:
    for name in ("plan", "cert", "state/worker"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "records.csv").touch()
    hidden = [tmp_path / "cert", tmp_path / "state"]
    found = set(readable([tmp_path], hidden))
    assert found == {tmp_path / "plan", tmp_path / "records.csv"}
    assert set(readable([tmp_path / "state" / "worker"], hidden)) == {tmp_path / "state" / "worker"}


def test_another_system_says_that_it_protects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement.sys, "platform", "darwin")
    words = confine(Allowed((), ()))
    assert {NO_FILES, NO_CALLS} < set(words)


@pytest.mark.parametrize(
    ("worker", "fault"),
    [
        ("{process: true, launch: srun python}", r"worker.launch: has no \{command\}"),
        ('{process: true, launch: "srun \'{command}"}', "worker.launch: is no command"),
        ("{process: true, over: pigeon}", "worker.over: must be 'socket', 'tcp' or 'folder'"),
    ],
)
def test_a_template_that_starts_nothing_is_refused_by_its_line(worker: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "collaborator.yaml"
    file.write_text(f"collaborator: clinic-a\nworker: {worker}\n")
    with pytest.raises(PlanError, match=fault):
        load_site_config(file)
