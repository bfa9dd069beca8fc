"""The page of published tables is the tables, and what it shows loads."""

import re
from pathlib import Path

import yaml

from fedfair.plan.dataset_presets import ACS_INCOME, ADULT, HEART
from fedfair.plan.loading import load_plan
from fedfair.report.presets_page import page
from tests.conftest import REPOSITORY


def test_the_page_is_written_from_the_tables_and_its_blocks_are_plans(tmp_path: Path) -> None:
    assert (REPOSITORY / "docs" / "how-to" / "published-tables.md").read_text() == page(), (
        "run: python -m fedfair.report.presets_page > docs/how-to/published-tables.md"
    )
    blocks = re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)
    assert [yaml.safe_load(block)["task"]["data"]["csv"] for block in blocks] == [HEART, ADULT, ACS_INCOME]
    for block in blocks:
        rest = "federation: {name: t, collaborators: [a, b]}\ntraining: {rounds: 1}\n"
        (tmp_path / "plan.yaml").write_text(f"{block}  model: {{name: linear}}\n{rest}")
        assert load_plan(tmp_path / "plan.yaml").task.data
