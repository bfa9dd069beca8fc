"""docs/reference/site-policy.md against the schema of a policy, and its example against a plan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import MEANING
from fedfair.policy.plan_check import check_policy
from fedfair.policy.site_config import SitePolicy, load_site_config
from fedfair.policy.terms import AskedTerms
from tests import plans
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference" / "site-policy.md").read_text()


def test_every_term_has_a_row_and_every_row_is_a_term() -> None:
    terms = PAGE.partition("## The terms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", terms, re.MULTILINE)
    assert sorted(rows) == sorted(SitePolicy.model_fields)


def test_every_kind_of_revelation_is_explained_as_in_the_code() -> None:
    assert [
        f"| `{kind}` | {words} |" for kind, words in MEANING.items() if f"| `{kind}` | {words} |" not in PAGE
    ] == []


def test_the_cautious_hospital_takes_part_in_a_careful_plan_and_in_no_other(tmp_path: Path) -> None:
    file = tmp_path / "collaborator.yaml"
    file.write_text(PAGE.partition("## A cautious hospital")[2].partition("```yaml\n")[2].partition("```")[0])
    policy = load_site_config(file).policy
    careful = plans.stated(
        [f"clinic-{letter}" for letter in "abcde"],
        task={"standardize": "secure"},
        training={"rounds": 200},
        secure_aggregation={"colluders": 1, "key_agreement": "x25519-mlkem768", "max_clip": 8.0},
    )
    check_policy(AskedTerms(Plan.model_validate(careful)), policy, "clinic-a")
    for section, change in (
        ("training", {"rounds": 201}),
        ("training", {"rounds": 200, "algorithm": "fedavg"}),
        ("evaluation", {"method": "exact"}),
        ("evaluation", {"site_means": True}),
        ("secure_aggregation", {"mode": "off"}),
    ):
        with pytest.raises(PlanError, match="the policy of clinic-a refuses this plan"):
            check_policy(AskedTerms(Plan.model_validate({**careful, section: change})), policy, "clinic-a")
