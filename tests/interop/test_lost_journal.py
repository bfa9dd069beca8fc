"""What a folder of the aggregator is worth whose journal is gone or damaged, after a real run over sockets."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError
from tests.interop.federation_kit import Federation, play, prepared
from tests.plans import small_plan


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = prepare(tmp_path_factory.mktemp("finished"), small_plan(rounds=1))
    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace


def copied(workspace: Workspace, folder: Path) -> Workspace:
    shutil.copytree(workspace.folder, folder)
    return Workspace(folder, workspace.collaborators)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lost", ["journal", "save", "emptied"])
def test_a_run_whose_journal_is_lost_begins_anew_only_if_the_operator_says_so(
    tmp_path: Path, finished: Workspace, lost: str
) -> None:
    workspace = copied(finished, tmp_path / "heart")
    save = workspace.folder / "save"
    if lost == "journal":
        (save / "journal.sqlite").unlink()
    elif lost == "emptied":
        (save / "journal.sqlite").write_bytes(b"")
    else:
        shutil.rmtree(save)
    before = contents(workspace.folder)
    with pytest.raises(FedfairError, match=r"journal\.sqlite is missing") as refusal:
        prepared(workspace)
    assert "result.json" in refusal.value.message
    assert ("last.safetensors" in refusal.value.message) == (lost != "save")
    assert "--fresh" in refusal.value.remedy
    assert contents(workspace.folder) == before
    assert play(workspace, Federation.everybody, fresh=True).state.value == "finished"


def test_a_flipped_bit_in_the_journal_does_not_become_the_model(tmp_path: Path, finished: Workspace) -> None:
    workspace = copied(finished, tmp_path / "heart")
    journal = workspace.folder / "save" / "journal.sqlite"
    with closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        (piece,) = connection.execute("SELECT bytes FROM piece WHERE name = 'model'").fetchone()
        spoilt = bytes([piece[0], piece[1], piece[2] ^ 1]) + piece[3:]
        connection.execute("UPDATE piece SET bytes = ? WHERE name = 'model'", (spoilt,))
    before = contents(workspace.folder / "save")
    with pytest.raises(FedfairError, match="the vector 'model' does not have the checksum"):
        prepared(workspace)
    del before["journal.sqlite"]
    after = contents(workspace.folder / "save")
    assert {name: after[name] for name in before} == before
