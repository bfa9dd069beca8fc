"""Own code in a computing process tries everything that it can: each attempt gets it nothing.

First what it may say to the service, whose answers are checked one by one; then what it may do to the machine, in
a real process under real protections.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from collaborator.computing import messages
from collaborator.computing.apart import SeparateComputation
from collaborator.computing.carrier import Channel, EndedError
from collaborator.computing.codec import decode, encode
from collaborator.computing.launching import BYTES_PER_SECOND, LOG_BYTES, LOG_FILES, keep_output
from collaborator.computing.serving import MAX_QUESTION_BYTES, Answerer
from collaborator.preparation import Readiness, make_ready
from fedfair.aggregation.requests import GlobalModel
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PrivacyError, TrainingError
from fedfair.ids import RoundNumber
from fedfair.privacy.releases import GaussianRelease, Release
from fedfair.training.site_task import SiteTask
from tests import plans
from tests.fork_server import stand_in
from tests.separate_computing import InAThread, Serving, separate
from tests.site_reading import read_site

FIRST = RoundNumber(1)
Lie = Callable[[Any], list[bytes | memoryview]]


def lying(lie: Lie) -> Serving:
    """Return a worker that is honest until it is asked for a change."""

    def serving(channel: Channel) -> None:
        answerer = Answerer(channel, ())
        try:
            while True:
                asked = decode(channel.receive(MAX_QUESTION_BYTES), messages.ASKED)
                answer = answerer.answer(asked)
                lies = isinstance(asked, messages.AskChange)
                channel.send(lie(answer) if lies else encode(answer))
        except EndedError:
            return

    return serving


def changed(**fields: object) -> Lie:
    return lambda answer: encode(replace(answer, **fields))


def shifted(answer: messages.ChangeMade) -> list[bytes | memoryview]:
    return encode(replace(answer, model=answer.model[:-1]))


LIES: Mapping[str, Lie] = {
    "noise": lambda _: [os.urandom(100)],
    "nothing": lambda _: [b""],
    "a text that is longer than its message": lambda _: [b"\xff\xff\xff\xff", b"ChangeMade\n{}"],
    "a pickle": lambda _: [b"\x05\0\0\0\x80\x04N.\n"],
    "a gigabyte": lambda _: [memoryview(bytes(1 << 20))] * 1024,
    "another answer": lambda _: encode(messages.Settled()),
    "no change": lambda _: encode(messages.NoChange("")),
    "a shorter model": shifted,
    "a wider model": lambda answer: encode(replace(answer, model=answer.model.astype(np.float64))),
    "another weight": changed(weight=1_000_000),
    "a threshold that is no number": changed(threshold=float("nan")),
    "a field that the sum does not have": changed(further={"spare": np.zeros(1)}),
    "the weight as a further field": changed(further={"weight": np.ones(())}),
    "a part of the model that stays": changed(kept=np.zeros(3)),
    "a release that no plan makes": lambda _: encode(
        messages.ReleasingRecords(GaussianRelease("training", 1.0, 0.5, 1))
    ),
    "bytes after the end": lambda answer: [*encode(answer), b"more"],
}


def masked(folder: Path) -> Path:
    file = folder / "plan.yaml"
    stated = plans.over(
        plans.small_plan(rounds=1), secure_aggregation={"mode": "malicious"}, task={"standardize": "none"},
        training={"precision": "fp32"},
    )  # fmt: skip
    file.write_text(yaml.safe_dump(stated))
    return file


def task_of(computation: SeparateComputation) -> tuple[SiteTask, GlobalModel]:
    binding = computation.binding()
    computation.records()
    return computation.task(binding, None)[0], GlobalModel(binding.vector, 0.5)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return masked(tmp_path_factory.mktemp("plan"))


@pytest.mark.parametrize("what", LIES)
def test_an_answer_that_is_none_ends_the_process_and_never_the_service(what: str, plan_file: Path) -> None:
    starts: list[InAThread] = []
    with separate(plan_file, "clinic-a", lying(LIES[what]), starts) as computation:
        task, model = task_of(computation)
        with pytest.raises(TrainingError, match="the computing process has failed 3 times over one question"):
            task.summable_change(model, FIRST, 1)
        assert [start.is_over for start in starts] == [True, True, True]
        told = [news.sentence for news in computation.take_notices()]
        assert len(told) == 3
        assert all(
            words.startswith("the computing process is started again: it said what is no") for words in told
        )


def test_a_process_that_dies_over_a_question_is_asked_again_and_has_the_same_answer(plan_file: Path) -> None:
    asked: list[int] = []

    def dies_twice(channel: Channel) -> None:
        def lie(answer: object) -> list[bytes | memoryview]:
            asked.append(1)
            if len(asked) < 3:
                raise EndedError("it dies")
            return encode(answer)

        lying(lie)(channel)

    with separate(plan_file, "clinic-a") as honest, separate(plan_file, "clinic-a", dies_twice) as dying:
        (one, model), (other, _) = task_of(honest), task_of(dying)
        expected, found = (task.summable_change(model, FIRST, 1) for task in (one, other))
        assert expected is not None
        assert found is not None
        assert expected.model.tobytes() == found.model.tobytes()
        assert [news.sentence.partition("; ")[0] for news in dying.take_notices()] == [
            "the computing process is started again: it is a thread, and has ended"
        ] * 2


def test_what_own_code_says_to_an_operator_moves_no_cursor(plan_file: Path) -> None:
    with separate(plan_file, "clinic-a", lying(changed(fault="\x1b[2J gone\r\n"))) as computation:
        task, model = task_of(computation)
        assert task.summable_change(model, FIRST, 1) is not None
        assert task.last_fault == " [2J gone  "


# ------------------------------------------------------------------------------------- the ledger comes first


class Silent(Answerer):
    """A worker that draws noise and tells nobody."""

    def _write_down(self, release: Release) -> None:
        del release


def silent(channel: Channel) -> None:
    answerer = Silent(channel, ())
    try:
        while True:
            channel.send(encode(answerer.answer(decode(channel.receive(MAX_QUESTION_BYTES), messages.ASKED))))
    except EndedError:
        return


class Ledger:
    """A ledger, which may refuse."""

    def __init__(self, fault: PrivacyError | None = None) -> None:
        self.written: list[Release] = []
        self._fault = fault

    def record(self, release: Release) -> None:
        if self._fault is not None:
            raise self._fault
        self.written.append(release)


def noised(folder: Path) -> Path:
    file = folder / "plan.yaml"
    noise = {"sample_level": {"noise_multiplier": 1.0}}
    stated = plans.over(plans.small_plan(rounds=1), privacy=noise, task={"standardize": "none"})
    file.write_text(yaml.safe_dump(stated))
    return file


@pytest.mark.parametrize("serving", [None, silent], ids=["announced", "silent"])
def test_a_release_is_in_the_ledger_once_whatever_own_code_says_of_it(
    serving: Serving | None, tmp_path: Path
) -> None:
    with separate(noised(tmp_path), "clinic-a", *([] if serving is None else [serving])) as computation:
        binding, ledger = computation.binding(), Ledger()
        computation.records()
        task, _ = computation.task(binding, ledger)  # type: ignore[arg-type]  # it records
        assert task.summable_change(GlobalModel(binding.vector, 0.5), FIRST, 1) is not None
        assert [release.purpose for release in ledger.written] == ["training"]


def test_what_the_ledger_refuses_is_not_answered(tmp_path: Path) -> None:
    with separate(noised(tmp_path), "clinic-a") as computation:
        binding, refuses = computation.binding(), Ledger(PrivacyError("the budget is spent"))
        computation.records()
        task, _ = computation.task(binding, refuses)  # type: ignore[arg-type]  # it records
        with pytest.raises(PrivacyError, match="the budget is spent"):
            task.summable_change(GlobalModel(binding.vector, 0.5), FIRST, 1)
        assert computation.take_notices() == []


# ------------------------------------------------------------------------------------- what it says without end


def test_endless_output_fills_no_disk_and_takes_no_more_than_its_share_of_time(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    seconds = 60
    pauses: list[float] = []

    def pause(left: float) -> None:
        pauses.append(left)
        if len(pauses) == seconds:
            os.close(reading)

    def say() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            try:
                while True:
                    pipe.write(b"x" * 99 + b"\n")
            except BrokenPipeError:
                return

    saying = threading.Thread(target=say)
    saying.start()
    keep_output(reading, Ended(), tmp_path / "worker.log", pause)
    saying.join()
    kept = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert len(pauses) == seconds
    assert kept <= LOG_BYTES * (LOG_FILES + 1) < seconds * BYTES_PER_SECOND


class Ended:
    """A pipe that the test has closed."""

    def close(self) -> None:
        return


# ------------------------------------------------------------------------------------- a real process

OWN = """
import ctypes, json, os, signal, socket, subprocess, sys
from pathlib import Path
from torch import nn

SITE = Path({site!r})


def attempts():
    yield "read a key", lambda: next((SITE / "cert").rglob("*.key")).read_bytes()
    yield "read a named key", lambda: Path({key!r}).read_bytes()
    yield "read the ledger", lambda: Path({ledger!r}).read_bytes()
    yield "read the site's file", lambda: (SITE / "clinic-a.yaml").read_bytes()
    yield "read an approval", lambda: (SITE / "approvals" / "clinic-a.json").read_bytes()
    yield "link to a key", lambda: (os.symlink({key!r}, "key"), Path("key").read_bytes())
    yield "write beside the plan", lambda: (SITE / "plan" / "plan.yaml").write_text("")
    yield "write into the site", lambda: (SITE / "note").write_text("x")
    yield "write elsewhere", lambda: Path("/var/tmp/fedfair-own-code").write_text("x")
    yield "open a connection", lambda: socket.create_connection(("127.0.0.1", 9), 1)
    yield "open a socket of this machine", lambda: socket.socket(socket.AF_UNIX)
    yield "end the service", lambda: os.kill({service}, signal.SIGKILL)
    yield "stop the service", lambda: os.kill({service}, signal.SIGSTOP)
    yield "read the memory of the service", lambda: open("/proc/{service}/mem", "rb")
    yield "read the variables of the service", lambda: open("/proc/{service}/environ", "rb").read()
    yield "another program that reads a key", lambda: subprocess.run(["cat", {key!r}], check=True)
    yield "bound the service", lambda: __import__("resource").prlimit({service}, 4, (0, 0))
    yield "mount", lambda: _call(165, b"none", b"/tmp", b"tmpfs", 0, None)
    yield "trace the service", lambda: _call(101, 16, {service}, None, None)
    yield "find a passphrase", lambda: os.environ["FEDFAIR_PASSPHRASE"]


def _call(*words):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def build(schema):
    if "--over" in sys.argv:
        for name, attempt in attempts():
            try:
                attempt()
            except (OSError, KeyError, StopIteration, subprocess.CalledProcessError) as fault:
                print("ATTEMPT", json.dumps([name, type(fault).__name__]), flush=True)
            else:
                print("ATTEMPT", json.dumps([name, "SUCCEEDED"]), flush=True)
    return nn.Linear(schema.input_shape[0], schema.classes)
"""
REFERENCE = "fedfair_test_own:build"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    torch.set_num_threads(1)
    (tmp_path / "forks").mkdir()
    monkeypatch.setattr(sys, "executable", str(stand_in(tmp_path / "forks")))
    monkeypatch.setenv("FEDFAIR_PASSPHRASE", "a passphrase")
    site = tmp_path / "site"
    (site / "src").mkdir(parents=True)
    words = {"site": str(site), "key": str(site / "cert" / "a.key"), "ledger": str(site / "ledger.sqlite-wal")}
    # Another process of this user stands for the service: the tests are not to end with it.
    service = subprocess.Popen(["sleep", "600"])
    (site / "src" / "fedfair_test_own.py").write_text(OWN.format(service=service.pid, **words))
    plan = plans.small_plan(rounds=1, protection={"mode": "malicious"})
    task = plan["task"]
    yield prepare(site, plan | {"task": {**task, "model": REFERENCE, "standardize": "none"}})  # type: ignore[dict-item]
    sys.modules.pop("fedfair_test_own", None)
    assert service.poll() is None
    service.kill()
    service.wait()


def ready_in_a_process(workspace: Workspace, **worker: object) -> Readiness:
    """Return a site whose code runs in a process of its own."""
    file = workspace.folder / "clinic-a.yaml"
    site = yaml.safe_load(file.read_text())
    site["policy"]["allow_module_code"] = True
    file.write_text(yaml.safe_dump(site | {"worker": {"process": True, **worker}}))
    return make_ready(read_site("clinic-a", file, workspace.plan, None))


def said_in(folder: Path) -> list[str]:
    return (folder / "logs" / "clinic-a_worker.log").read_text().splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="another system says that it protects nothing")
def test_own_code_in_a_real_process_reaches_nothing(own: Workspace) -> None:
    (own.folder / "cert" / "a.key").write_text("a key")
    (own.folder / "ledger.sqlite-wal").write_text("a ledger")
    ready = ready_in_a_process(own)
    try:
        assert ready.computation.words == ("a process of its own, without keys and ledger",)
        assert ready.task.summable_change(GlobalModel(ready.binding.vector, 0.5), FIRST, 1) is not None
    finally:
        ready.computation.close()
    tried = dict(json.loads(line.partition(" ")[2]) for line in said_in(own.folder) if line.startswith("ATTEMPT"))
    assert len(tried) == OWN.count("    yield ")
    assert {name: how for name, how in tried.items() if how == "SUCCEEDED"} == {}
