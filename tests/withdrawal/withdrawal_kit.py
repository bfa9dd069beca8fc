"""A site whose persons withdraw: a workspace of two sites, with a table whose persons have several records."""

from pathlib import Path

import yaml
from click.testing import Result
from typer.testing import CliRunner

from fedfair.cli.commands import app
from tests import plans

ROWS = [f"p {row % 50},{20 + row % 60},{row % 2}" for row in range(80)]


def written(folder: Path, *rows: str, data: dict[str, object] | None = None, **sections: plans.Section) -> Path:
    """Write plan, configuration and table of clinic-a; return its configuration."""
    (folder / "plan").mkdir(exist_ok=True)
    task = {"data": {"csv": {"label": "died", "numeric": ["age"]}}, "standardize": "secure"}
    stated = plans.stated(("clinic-a", "clinic-b"), task=task, **sections)
    (folder / "plan/plan.yaml").write_text(yaml.safe_dump(stated))
    (folder / "own.csv").write_text("\n".join(["patient,age,died", *(rows or ROWS)]) + "\n", encoding="utf-8")
    named = {"train": "own.csv", "record_id": "patient"} if data is None else data
    (folder / "collaborator.yaml").write_text(yaml.safe_dump({"collaborator": "clinic-a", "data": named}))
    return folder / "collaborator.yaml"


def command(folder: Path, *words: str) -> Result:
    """Run `fedfair data ...` for the site of a folder."""
    files = ["-c", str(folder / "collaborator.yaml"), "-p", str(folder / "plan/plan.yaml")]
    return CliRunner().invoke(app, ["data", *words, *files])
