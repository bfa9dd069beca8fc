"""The meaning of a key: the text under it in its class, or in its `Field`."""

import inspect
from collections.abc import Iterator

import pytest
from pydantic import Field

from fedfair.plan import meanings as module
from fedfair.plan.fields import Section
from fedfair.plan.meanings import DescribedSchema, meanings


class Above(Section):
    """A section that another one is made of."""

    first: int = 1
    """the first of two numbers, which is told in a text of more than one line; the lines are joined by a blank,
    wherever they end"""


class Below(Above):
    """The other one."""

    second: int
    plain: int = Field(default=2, description="told by its field")
    third: int = Field(default=3, ge=0)
    """the last"""


JOINED = (
    "the first of two numbers, which is told in a text of more than one line; the lines are joined by a blank, "
    "wherever they end"
)


def test_a_key_means_what_stands_under_it_or_in_its_field() -> None:
    assert meanings(Below) == {"first": JOINED, "plain": "told by its field", "third": "the last"}


def test_a_schema_says_what_its_keys_mean() -> None:
    made = Below.model_json_schema(schema_generator=DescribedSchema)["properties"]
    assert made["first"]["description"] == JOINED
    assert made["third"] == {
        "default": 3, "description": "the last", "minimum": 0, "title": "Third", "type": "integer",
    }  # fmt: skip
    assert "description" not in made["second"]


@pytest.fixture
def without_sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def missing(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", missing)
    for known in (module._bodies, module.meanings):
        known.cache_clear()
    yield
    for known in (module._bodies, module.meanings):
        known.cache_clear()


@pytest.mark.usefixtures("without_sources")
def test_without_sources_a_key_means_what_its_field_says_alone() -> None:
    assert meanings(Below) == {"plain": "told by its field"}
