"""The reference page against the schema it describes."""

from __future__ import annotations

from pydantic import BaseModel

from fedfair.plan.meanings import meanings
from fedfair.plan.schema import Plan
from fedfair.report.plan_keys import SECTIONS, page
from tests.conftest import REPOSITORY


def test_the_reference_that_is_kept_is_the_one_that_is_written() -> None:
    assert (REPOSITORY / "docs" / "reference" / "plan.md").read_text() == page()


def test_every_key_has_a_description() -> None:
    missing = [
        f"{title}.{name}"
        for title, section in SECTIONS
        for name in section.model_fields
        if name not in meanings(section)
    ]
    assert missing == []


def test_every_section_of_the_plan_is_on_the_page() -> None:
    listed = {section for _, section in SECTIONS}
    sections = {field.annotation for field in Plan.model_fields.values()}
    assert {
        section for section in sections if isinstance(section, type) and issubclass(section, BaseModel)
    } <= listed
