"""`fedfair evaluate`: where its result may not go is said before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError
from fedfair.workspace.create import create_workspace


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("plan/plan.yaml", "is no result of fedfair's"),
        ("plan", "is a folder"),
        ("none/result.json", "does not exist"),
    ],
)
def test_a_result_replaces_nothing_but_a_result(place: str, fault: str, tmp_path: Path) -> None:
    create_workspace(tmp_path, "heart", "breast-cancer")
    plan, model = tmp_path / "plan" / "plan.yaml", tmp_path / "model.safetensors"
    before, _ = plan.read_text(), model.touch()
    words = ["evaluate", "-p", str(plan), "--model", str(model), "--json", str(tmp_path / place)]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, DataError)
    assert fault in refused.message
    assert refused.remedy
    assert plan.read_text() == before
