"""libyaml and PyYAML: which of the two parses a file changes no value, no line and no word."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.plan.yaml_reader import LIBYAML, READ_ALIKE, Document, parse_document, parsed_by

PATH = Path("plan.yaml")
PIECES = [
    *":-[]{},#&*|>'\"%@` \n\r\\~", "\n  ", "\n- ", ": ", "---\n", "...\n", "|\n  a\n", ">-\n  b\n", "a: ", "key",
    "1e-3", "\\x41", "\u2028", "\x85", "\x00", "é", "%YAML 1.1\n", "<<: ", "= ", "'it''s'", '"\\u00e9"',
    "# note\n",
]  # fmt: skip

pytestmark = pytest.mark.skipif(LIBYAML is None, reason="this PyYAML has no libyaml")


def by_pyyaml(text: str) -> Document | None:
    """Return what PyYAML's own parser makes of a text; None where it refuses it."""
    try:
        return parsed_by(yaml.SafeLoader, text, PATH)
    except (yaml.YAMLError, PlanError):
        return None


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@settings(max_examples=400)
def test_whatever_is_given_to_libyaml_and_read_has_the_values_and_lines_of_pyyaml(text: str) -> None:
    assert READ_ALIKE.fullmatch(text)
    try:
        fast = parsed_by(LIBYAML, text, PATH)
    except (yaml.YAMLError, PlanError):
        return  # PyYAML reads it again, and words the fault
    assert fast == by_pyyaml(text)


@pytest.mark.parametrize("text", ["{a? : 1}", "a\t:\n", "a:\n\ufeff  b: 3\n", "a: !\n", "key: [0, 0? .5]"])
def test_what_the_two_read_otherwise_is_read_by_pyyaml(text: str) -> None:
    fast, slow = parsed_by(LIBYAML, text, PATH), by_pyyaml(text)
    assert fast != slow
    try:
        assert parse_document(text, PATH) == slow
    except PlanError:
        assert slow is None


def test_a_fault_has_the_words_of_pyyaml() -> None:
    with pytest.raises(PlanError, match="expected ',' or ']', but got '<stream end>'"):
        parse_document("a: [1, 2\n", PATH)
