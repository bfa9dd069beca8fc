"""Mistakes in a plan that people make, and what they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import MAX_BYTES, parse_document, read_text
from tests import plans


def told(**sections: plans.Section) -> str:
    """Return what is said of a plan with these keys."""
    document = parse_document(str(plans.over(plans.stated(), **sections)), Path("plan.yaml"))
    with pytest.raises(PlanError) as raised:
        validated(Plan, document)
    return raised.value.diagnostics()


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        (
            "task",
            "model",
            {"name": "lienar"},
            "name is 'lienar'; it must be one of linear, mlp, resnet18; did",
        ),
        ("task", "model", {"hidden": [3]}, "has no name; it must be one of linear, mlp, resnet18"),
        ("task", "loss", {"name": "hubre"}, "name is 'hubre'"),
        ("task", "loss", {"name": "hubre"}, "did you mean 'huber'?"),
        (
            "task",
            "data",
            {"cvs": {}},
            "has the key 'cvs'; it must be one of acs_employment, csv, eicu, images",
        ),
        ("task", "data", {"cvs": {}}, "did you mean 'csv'?"),
        ("objective", "worst_group_size", 30, "it is a share: 30 % is 0.3"),
        ("objective", "worst_group_size", "30%", "write 30% as 0.3"),
        ("objective", "tradeoff", "5 %", "write 5 % as 0.05"),
        ("task", "test_fraction", 20, "it is a share: 20 % is 0.2"),
    ],
)
def test_a_mistake_is_told_with_its_value_and_what_was_meant(
    section: str, key: str, value: object, said: str
) -> None:
    assert said in told(**{section: {key: value}})


def test_a_number_that_is_no_share_is_not_taken_for_one() -> None:
    assert "it is a share" not in told(objective={"worst_group_size": 1000})
    assert "30% as" not in told(training={"rounds": "30%"})


def test_a_file_that_is_too_long_is_told_its_length_and_what_to_shorten(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("x" * (MAX_BYTES + 1))
    with pytest.raises(PlanError, match=f"has {MAX_BYTES + 1} bytes, .* at most {MAX_BYTES}") as raised:
        read_text(path)
    assert "a value that is not listed counts as other" in raised.value.remedy
