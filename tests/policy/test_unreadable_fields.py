"""What a person cannot read in a plan has a term in a site's policy, and the term's default refuses.

A digest, a reference to code, a file: whoever approves a plan sees a text that says nothing of what it stands for.
The fields are found in the schema itself, so that a new one fails here until it has a term. A text that says what
it means is on the other list, with what it is.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import AfterValidator

from fedfair.plan.fields import Digest, Reference, Section
from fedfair.plan.schema import Plan
from fedfair.plan.sources import _check_name
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from tests import plans

SHA = "sha256:" + "7" * 64
BEGUN = {"weights": SHA, "scaling": SHA}
GOING_ON = {**BEGUN, "continues": {"plans": [SHA], "rounds": 1, "state": SHA}}

UNREADABLE: dict[str, tuple[str, dict[str, dict[str, object]]]] = {
    "task.data": ("allow_module_code", {"task": {"data": "own:load"}}),
    "task.model": ("allow_module_code", {"task": {"model": "own:model"}}),
    "task.loss.name": ("allow_module_code", {"task": {"loss": "own:loss"}, "evaluation": {"loss_range": 4.0}}),
    "training.initial.weights": ("initial_weights", {"training": {"initial": BEGUN}}),
    "training.initial.scaling": ("initial_weights", {"training": {"initial": BEGUN}}),
    "training.initial.continues.plans": ("initial_weights", {"training": {"rounds": 2, "initial": GOING_ON}}),
    "training.initial.continues.state": ("initial_weights", {"training": {"rounds": 2, "initial": GOING_ON}}),
}
"""Every field that stands for something else than it says, with its term and a plan that uses it."""

_CSV = (
    "categorical", "collaborator", "columns", "comment", "dates", "event", "keep", "label", "label_values",
    "labels", "missing_of", "missing_values", "missing_values_of", "numeric", "ranges", "rows", "target", "time",
    "train_of",
)  # fmt: skip
READABLE = {
    # Names, of which each is somebody or something that the approving person knows.
    "federation.name", "federation.aggregator.host", "federation.collaborators", "evaluation.site_weights",
    # Keys that people have compared by phone, and of which each site finds its own.
    "federation.roster",
    # Columns, categories and spellings, as they stand in the site's own file.
    *(f"task.data.csv.{name}" for name in _CSV), "training.options.group_column", "task.partition.column",
    "task.data.images.label", "task.data.images.keep", "task.data.eicu.keep", "task.data.acs_employment.keep",
    "task.data.images.collaborator", "task.data.eicu.collaborator", "task.data.acs_employment.collaborator",
    # Paths for a simulation: a site names its own files.
    "task.data.csv.train", "task.data.csv.test", "task.data.mnist.folder", "task.data.eicu.folder",
    "task.data.images.folder", "task.data.images.attributes",
    "task.data.acs_employment.train", "task.data.acs_employment.test",
}  # fmt: skip
"""Every other text of a plan: it says what it means."""


def texts(
    annotation: object, place: str, checks: tuple[object, ...] = ()
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the place of every text in a type, with its checks; refuse what is no value that a person can read."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        more = tuple(each.func for each in inner[1:] if isinstance(each, AfterValidator))
        yield from texts(inner[0], place, checks + more)
    elif origin in {typing.Union, types.UnionType, tuple, dict, list}:
        for each in inner:
            yield from texts(each, place, checks)
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        for name, field in annotation.model_fields.items():
            found = tuple(each.func for each in field.metadata if isinstance(each, AfterValidator))
            yield from texts(field.annotation, f"{place}.{name}".lstrip("."), found)
    elif annotation is str:
        yield place, checks
    else:
        # A number, a choice of words, true or false: anything else is no value that a person can read.
        plain = annotation in {int, float, bool, type(None), Ellipsis} or origin is typing.Literal
        assert plain, f"{place}: {annotation} is neither readable nor known here"


def opaque_checks() -> set[object]:
    """Return the checks of the types that stand for something else than they say."""
    named = {
        each.func
        for one in (Digest, Reference)
        for each in typing.get_args(one)[1:]
        if isinstance(each, AfterValidator)
    }
    # The name of a data set, or a reference to code that reads one.
    return named | {_check_name}


def found() -> tuple[set[str], set[str]]:
    """Return the unreadable fields of a plan, and its other texts."""
    opaque, unreadable, others = opaque_checks(), set(), set()
    for place, checks in texts(Plan, ""):
        (unreadable if opaque & set(checks) else others).add(place)
    return unreadable, others


def test_every_field_that_a_person_cannot_read_has_a_term() -> None:
    assert found()[0] == set(UNREADABLE)


def test_every_other_text_of_a_plan_is_known_to_say_what_it_means() -> None:
    assert found()[1] == READABLE


def test_a_text_of_an_unknown_kind_is_found() -> None:
    class Sealed(Section):
        blob: bytes
        place: Path

    for name in ("blob", "place"):
        with pytest.raises(AssertionError, match="neither readable nor known"):
            list(texts(Sealed.model_fields[name].annotation, name))


@pytest.mark.parametrize("place", UNREADABLE)
def test_the_default_of_each_term_refuses_and_a_list_of_digests_allows(place: str) -> None:
    key, sections = UNREADABLE[place]
    protected = {"secure_aggregation": {"mode": "malicious"}}
    plan = plans.parsed(**{**protected, **sections})
    with pytest.raises(PolicyError) as refused:
        check_policy(AskedTerms(plan, bytes(32)), SitePolicy(), "clinic-a")
    assert [term.key for term in refused.value.broken] == [key]
    # The remedy names a digest, and with it in the list the plan passes.
    (digest,) = re.findall("sha256:[0-9a-f]{64}", refused.value.broken[0].change)
    listed = {"initial_weights": [digest]} if key == "initial_weights" else {"module_code": [digest]}
    check_policy(AskedTerms(plan, bytes(32)), SitePolicy.model_validate(listed), "clinic-a")
