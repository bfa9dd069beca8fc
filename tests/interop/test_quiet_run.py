"""The notices to the lead of a run in which nothing went wrong, and a site that is started twice."""

import asyncio
import os
import re
from pathlib import Path

import pytest
import torch

from collaborator.write_ahead import WriteAheadLog
from fedfair.cli.loopback import prepare
from fedfair.errors import FedfairError
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.plans import small_plan

ALARMING = re.compile(
    r"passed over|lost|refus|error|fault|broke|disconnect|dropped|abstain|damaged", re.IGNORECASE
)


def test_a_perfect_masked_run_says_nothing_that_sounds_like_a_fault(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    workspace = prepare(tmp_path, small_plan(rounds=4, protection={"mode": "malicious", "most_records": 512}))
    notes: list[str] = []

    async def everybody(federation: Federation) -> None:
        taking_part = [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await federation.watching.until_round(4)
        notes.extend(federation.watching.notes)
        await asyncio.gather(*taking_part)

    assert play(workspace, everybody).state.value == "finished"
    assert [note for note in notes if ALARMING.search(note)] == []
    # Late answers are a number of each sum, and nothing that anybody is told. Two of three open a training sum, so
    # one answer comes while the next sum continues; the other sums are opened by all three.
    lines = metrics(workspace)
    before = [None, *(line["purpose"] for line in lines)]
    late = [int(purpose == "training") for purpose in before[:-1]]
    assert [line["late_answers"] for line in lines] == late
    assert sum(late) > 1
    # That it listens, who came, and little else.
    assert len(notes) <= 2 * (1 + len(NAMES)), notes


def test_a_site_that_is_started_twice_is_told_which_process_runs_already(tmp_path: Path) -> None:
    path = tmp_path / "clinic-a-0123.secagg"
    first = WriteAheadLog(path)
    with pytest.raises(FedfairError) as caught:
        WriteAheadLog(path)
    assert caught.value.message == f"{path} is in use by process {os.getpid()}: this site already runs here"
    assert caught.value.remedy == "stop it first, or let it finish"
    first.close()
    WriteAheadLog(path).close()
