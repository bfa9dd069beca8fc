"""Ranges of names in a plan stand for what is written out, to the digest, and cannot fill a memory."""

from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.digest import canonical_plan
from fedfair.plan.loading import load_plan
from fedfair.plan.name_ranges import written_out
from fedfair.plan.schema import Plan
from tests import plans

TEXT = """
federation: {name: demo, collaborators: ["site-{8..11}", z]}
task: {data: breast-cancer, model: {name: linear}, partition: {scheme: random}}
training: {rounds: 1}
"""


def loaded(folder: Path, names: str) -> Plan:
    place = folder / "plan.yaml"
    place.write_text(TEXT.replace('"site-{8..11}"', names))
    return load_plan(place)


@pytest.mark.parametrize("names", ['"s{1..100000}"', '"s{0..999999999}"', '"a{1..60000}", "b{1..60000}"'])
def test_too_many_names_are_refused_without_being_made(names: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="at most 100000 items"):
        loaded(tmp_path, names)


@pytest.mark.parametrize("name", ["s{3..1}", "s{1..}", "s{a..b}", "s{01..5}", "{1..2}{3..4}", "s{1,2}"])
def test_what_is_no_range_is_no_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not usable in a certificate"):
        loaded(tmp_path, f'"{name}"')


def test_ranges_are_the_names_that_they_stand_for_however_many(tmp_path: Path) -> None:
    plan = loaded(tmp_path, '"site-{8..11}"')
    assert plan.federation.collaborators == ("site-8", "site-9", "site-10", "site-11", "z")
    assert canonical_plan(plan) == canonical_plan(loaded(tmp_path, "site-8, site-9, site-10, site-11"))
    plan = loaded(tmp_path, '"s{1..99999}"')
    assert len(plan.federation.collaborators) == 100_000
    assert plan.federation.collaborators[99_998] == "s99999"
    with pytest.raises(PlanError, match="'site-9' is listed twice"):
        loaded(tmp_path, '"site-{8..11}", site-9')
    assert written_out("a", 5) == "a"
    assert written_out(None, 5) is None
    assert written_out([1, "a"], 5) == [1, "a"]
    assert plans.parsed(["a", "b"]).federation.collaborators == ("a", "b")
