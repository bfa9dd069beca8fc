"""The reference page against the schema it describes."""

from pydantic import BaseModel

from fedfair.plan.meanings import meanings
from fedfair.plan.schema import Plan
from fedfair.report.plan_keys import SECTIONS, page
from tests.conftest import REPOSITORY


def test_the_reference_is_the_written_one_with_every_key_and_section() -> None:
    assert (REPOSITORY / "docs" / "reference" / "plan.md").read_text() == page()
    missing = [
        f"{title}.{name}"
        for title, section in SECTIONS
        for name in section.model_fields
        if name not in meanings(section)
    ]
    assert missing == []
    listed = {section for _, section in SECTIONS}
    sections = {field.annotation for field in Plan.model_fields.values()}
    assert {
        section for section in sections if isinstance(section, type) and issubclass(section, BaseModel)
    } <= listed
