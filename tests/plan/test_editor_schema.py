"""The JSON Schema of plan.yaml: every plan that is good fits it, and what it refuses is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from typer.testing import CliRunner

from fedfair.cli.plan import app
from fedfair.plan.editor_schema import plan_schema
from fedfair.plan.meanings import meanings
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import parse_document
from fedfair.policy.site_config import SiteConfig
from fedfair.report.plan_keys import PLAN_SECTIONS
from fedfair.workspace.create import TEMPLATES, plan_text
from tests.conftest import REPOSITORY

SCHEMA = Draft202012Validator(plan_schema())


def plans_in_pages() -> dict[str, str]:
    pages = [
        REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md"),
    ]  # fmt: skip
    blocks = {
        f"{page.name}-{number}": block
        for page in pages
        for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
    }
    return {name: block for name, block in blocks.items() if re.search(r"^federation:", block, re.MULTILINE)}


EXAMPLES = sorted((REPOSITORY / "examples").rglob("plan.yaml"))
PLANS = {
    **{f"template-{name}": plan_text("heart", name) for name in TEMPLATES},
    **{
        str(path.relative_to(REPOSITORY)): path.read_text()
        for path in (REPOSITORY / "examples").rglob("plan.yaml")
    },
    **plans_in_pages(),
}


def values_of(text: str) -> Any:  # noqa: ANN401 - JSON has every type
    return json.loads(json.dumps(parse_document(text, Path("plan.yaml")).values))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_the_product_fits_the_schema_written_out_or_not(name: str) -> None:
    values = values_of(PLANS[name])
    SCHEMA.validate(values)
    SCHEMA.validate(validated(Plan, parse_document(PLANS[name], Path("plan.yaml"))).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("federation", {"colaborators": ["a"]}), ("training", {"rounds": "many"}), ("training", {"rounds": 0}),
        ("objective", {"worst_group_size": 2}), ("task", {"model": {"name": "transformer"}}),
    ],
)  # fmt: skip
def test_a_plan_with_a_mistake_does_not_fit(section: str, change: dict[str, object]) -> None:
    values = values_of(PLANS["template-csv"])
    values[section] |= change
    assert not SCHEMA.is_valid(values)


def test_every_key_of_the_reference_is_explained() -> None:
    definitions: dict[str, Any] = plan_schema()["$defs"]
    described: list[tuple[type[BaseModel], str]] = [
        (section, name) for _, section in PLAN_SECTIONS for name in section.model_fields
    ]
    for section, name in described:
        assert definitions[section.__name__]["properties"][name]["description"] == meanings(section)[name]
    assert SiteConfig.__name__ not in definitions


def test_the_schema_is_one_and_the_command_prints_it() -> None:
    Draft202012Validator.check_schema(plan_schema())
    outcome = CliRunner().invoke(app, ["schema"])
    assert json.loads(outcome.stdout) == plan_schema()
