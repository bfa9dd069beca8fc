"""`approvers.yaml`: who decides, and every mistake with its line."""

from pathlib import Path

import pytest

from fedfair.consent.approvers import load_approvers
from fedfair.errors import ApprovalError, PlanError
from tests.consent import people


def test_the_people_of_a_site_are_read_with_their_keys(tmp_path: Path) -> None:
    found = people.approvers(tmp_path)
    assert found.needed == 2
    assert list(found.people) == list(people.NAMES)
    assert found.person("li").words == "the one named li"
    assert found.person("li").key.public_bytes_raw() == people.KEYS["li"].public_key().public_bytes_raw()
    assert people.public("li") not in repr(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("needed: 3\npeople:\n  amina: {{key: '{amina}'}}", "approvers.yaml:1: needed: is 3, of 1 people"),
        ("needed: 0\npeople:\n  amina: {{key: '{amina}'}}", "approvers.yaml:1: needed: must be >= 1, found 0"),
        ("needed: 1\npeople: {{}}", "approvers.yaml:2: people: must have at least 1 items"),
        ("needed: 1\npeople:\n  amina: {{key: 'ed25519:AAAA'}}", "approvers.yaml:3: people.amina.key"),
        ("needed: 1\npeople:\n  ../x: {{key: '{amina}'}}", "'../x' cannot name a person"),
        (
            "needed: 2\npeople:\n  amina: {{key: '{amina}'}}\n  jonas: {{key: '{amina}'}}",
            "approvers.yaml:4: people.jonas.key: is the key of amina too",
        ),
        ("people:\n  amina: {{key: '{amina}'}}", "needed: is missing -> how many of the people"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "approvers.yaml"
    path.write_text(text.format(amina=people.public("amina")), encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        load_approvers(path)
    assert expected in caught.value.message


def test_a_name_that_nobody_has_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ApprovalError, match="'eve' is none of the people") as caught:
        people.approvers(tmp_path).person("eve")
    assert "amina, jonas, li" in caught.value.remedy
