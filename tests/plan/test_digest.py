"""The digest: the same for every spelling of a plan, another for every other value."""

import hashlib
import json
import math
from pathlib import Path
from typing import get_origin

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.plan.algorithms import OptionsSection
from fedfair.plan.csv_table import CsvData
from fedfair.plan.digest import canonical_plan, format_digest, parse_digest, plan_digest, weights_digest
from fedfair.plan.schema import Plan
from fedfair.plan.yaml_reader import parse_document
from fedfair.tables.source_modules import declared_schema

VALUES: dict[str, object] = {
    "federation": {"name": "heart", "collaborators": ["a", "b", "c"], "min_collaborators": 2},
    "task": {
        "test_fraction": 0.2,
        "data": {"csv": {"label": "y", "numeric": ["age"], "categorical": {"sex": ["F", 1, 1.0, True, "1"]}}},
        "model": {"name": "mlp", "hidden": [8]},
    },
    "objective": {"worst_group_size": 0.1, "tradeoff": 0.05, "smoothing": {"gamma": 0.02}},
    "training": {"rounds": 300, "batch_size": 256, "learning_rate": 0.01, "seed": 0},
    "evaluation": {"every": 10, "group_sizes": [0.1, 0.3]},
}


def digest(plan: Plan, **changes: object) -> bytes:
    rest = {"layout_digest": bytes(32), "initial_weights_digest": bytes(32), "code_digests": {}, **changes}
    return plan_digest(plan, **rest)  # type: ignore[arg-type] # the tests vary one argument at a time


def shuffled(values: object, draw: st.DrawFn) -> object:
    if isinstance(values, dict):
        keys = draw(st.permutations(list(values)))
        return {key: shuffled(values[key], draw) for key in keys}
    return values


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """Draw another way to write VALUES: order of keys, block or flow style, comments, an explicit default."""
    values = json.loads(json.dumps(VALUES))
    if draw(st.booleans()):
        values["secure_aggregation"] = {"mode": "malicious", "max_clip": draw(st.sampled_from([1024, 1024.0]))}
    if draw(st.booleans()):
        values["training"]["threshold_learning_rate"] = None
    text = yaml.safe_dump(
        shuffled(values, draw), sort_keys=False, default_flow_style=draw(st.booleans()),
        indent=draw(st.integers(2, 6)),
    )  # fmt: skip
    return draw(st.sampled_from(["", "# a comment\n\n"])) + text + draw(st.sampled_from(["", "# the end\n"]))


def test_the_digest_is_a_hash_of_length_prefixed_fields_that_anybody_can_recompute() -> None:
    plan = Plan.model_validate(VALUES)
    fields = [b"fedfair/plan/v2", canonical_plan(plan), b"L" * 32, b"W" * 32, (2).to_bytes(8, "big")]
    fields += [b"src/a.py", b"A" * 32, b"src/b.py", b"B" * 32]
    expected = hashlib.sha256(b"".join(len(field).to_bytes(8, "big") + field for field in fields)).digest()
    code = {"src/b.py": b"B" * 32, "src/a.py": b"A" * 32}
    assert (
        plan_digest(plan, layout_digest=b"L" * 32, initial_weights_digest=b"W" * 32, code_digests=code) == expected
    )


def test_the_canonical_plan_leaves_defaults_out_and_writes_floats_in_hex() -> None:
    assert json.loads(canonical_plan(Plan.model_validate(VALUES))) == {
        "federation": {"name": "heart", "collaborators": ["a", "b", "c"], "min_collaborators": 2},
        "task": {
            "test_fraction": {"float": "0x1.999999999999ap-3"},
            "data": {
                "csv": {
                    "label": "y",
                    "numeric": ["age"],
                    "categorical": {"sex": ["F", 1, {"float": "0x1.0000000000000p+0"}, True, "1"]},
                }
            },
            "model": {"name": "mlp", "hidden": [8]},
        },
        "training": {"rounds": 300},
        "evaluation": {"group_sizes": [{"float": "0x1.999999999999ap-4"}, {"float": "0x1.3333333333333p-2"}]},
    }


@given(spellings())
@settings(deadline=None, max_examples=30)
def test_another_spelling_has_the_same_digest(text: str) -> None:
    plan = Plan.model_validate(parse_document(text, Path("plan.yaml")).values)
    assert digest(plan) == digest(Plan.model_validate(VALUES))


def leaves(values: object, place: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], object]]:
    items: object
    if isinstance(values, dict):
        items = values.items()
    elif isinstance(values, list | tuple):
        items = enumerate(values)
    else:
        return [(place, values)]
    return [leaf for key, value in items for leaf in leaves(value, (*place, key))]


ALL_LEAVES = leaves(Plan.model_validate(VALUES).model_dump(mode="json"))
WORDS = {
    "heart": "lungs", "malicious": "off", "softplus": "zang", "fedsrcvar": "fedavg", "step": "round",
    "samples": "batch", "bound": "quantile", "last": "best", "auto": "cpu", "fp32": "fp64", "none": "secure",
    "refuse": "mean", ",": ";", ".": ",", "utf-8": "latin-1",
    "localhost": "127.0.0.1", "mlp": None, "rcvar": None, 32: 24,
    "x25519": "x25519-mlkem768", "histogram": "exact", "platt": "none",
    "constant": "linear", "cosine": "linear", "zang": "softplus", "best": "last",
}  # fmt: skip


def changed(value: object) -> list[object]:
    """Return other values that the same field may take; none where it may take no other."""
    if value in WORDS and not isinstance(value, bool):
        # Beside a device, a clip may be auto, which is otherwise a number, and so may the neighbours be.
        others = ["all", 1.0] if value == "auto" else []
        return [WORDS[value], *others] if WORDS[value] else []  # type: ignore[index] # hashable by construction
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        # The next float up is the smallest change that can be made.
        return [math.nextafter(value, math.inf)]
    return [f"{value}x"] if isinstance(value, str) else []


def replaced(values: object, place: tuple[str | int, ...], new: object) -> object:
    if not place:
        return new
    copy = json.loads(json.dumps(values))
    copy[place[0]] = replaced(copy[place[0]], place[1:], new)
    return copy


def test_a_change_of_any_value_changes_the_digest() -> None:
    plan = Plan.model_validate(VALUES)
    values = json.loads(plan.model_dump_json())
    digests, unchanged = {digest(plan)}, []
    for place, value in ALL_LEAVES:
        candidates = changed(value)
        valid = [other for other in candidates if _is_valid(replaced(values, place, other))]
        if not valid:
            unchanged.append(place)
            continue
        digests.add(digest(Plan.model_validate(replaced(values, place, valid[0]))))
    assert len(digests) == 1 + len(ALL_LEAVES) - len(unchanged)
    # Fields with one allowed value, and those that are null here, are not varied; everything else was.
    assert {place[-1] for place in unchanged} <= {
        "name", "sample_level", "collaborator_level", "statistics", "partition", "input_shape",
        "classes", "loss_bound", "local_epochs", "threshold_learning_rate", "loss_range", "train",
        "test", "label_values", "collaborator", "columns", "comment", "thousands", "label_above",
        "server_optimizer", "control_variates", "initial", "survey", "target", "time", "event",
        "measure", "reference", "threshold_init", "weight_decay", "patience", "slices", "parameters",
        "frozen", "group_size", "release_audit", *OptionsSection.model_fields,
    }  # fmt: skip


def _is_valid(values: object) -> bool:
    try:
        Plan.model_validate_json(json.dumps(values))
    except ValueError:
        return False
    return True


@given(
    st.floats(min_value=1e-9, max_value=1.0), st.floats(min_value=1e-9, max_value=1.0)
)  # learning rates are floats above 0
def test_two_floats_share_a_digest_only_if_they_are_equal(left: float, right: float) -> None:
    first, second = (
        Plan.model_validate({**VALUES, "training": {"rounds": 1, "learning_rate": rate}}) for rate in (left, right)
    )
    assert (digest(first) == digest(second)) == (left == right)


def test_options_and_types_of_categories_count() -> None:
    training = {"rounds": 300, "algorithm": "afl"}
    digests = {
        digest(Plan.model_validate(VALUES | {"training": training | {"options": options}}))
        for options in ({}, {"adversary_learning_rate": 0.05}, {"adversary_learning_rate": 0.1})
    }
    assert len(digests) == 3
    plans = [
        Plan.model_validate(
            {**VALUES, "task": {"data": {"csv": {"label": "y", "categorical": {"c": [one]}}}, "model": "m:f"}}
        )
        for one in (1, 1.0, True, "1")
    ]
    assert len({digest(plan) for plan in plans}) == 4


def test_layout_weights_and_code_are_part_of_the_digest() -> None:
    plan = Plan.model_validate(VALUES)
    digests = {
        digest(plan), digest(plan, layout_digest=b"x" * 32), digest(plan, initial_weights_digest=b"x" * 32),
        digest(plan, code_digests={"src/a.py": bytes(32)}), digest(plan, code_digests={"src/b.py": bytes(32)}),
        digest(plan, code_digests={"src/a.py": b"x" * 32}),
        digest(plan, code_digests={"src/a.py": bytes(32), "src/b.py": bytes(32)}),
    }  # fmt: skip
    assert len(digests) == 7
    assert weights_digest(b"") != weights_digest(bytes(4)) != weights_digest(bytes(8))


@given(st.binary(min_size=32, max_size=32))
def test_a_digest_survives_its_text_form(raw: bytes) -> None:
    assert parse_digest(format_digest(raw)) == raw


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "0" * 64, "x" * 500])
def test_a_text_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not a digest"):
        parse_digest(text)


def plan_of_table(table: dict[str, object]) -> Plan:
    task = {"data": {"csv": table}, "input_shape": [8], "classes": 2}
    return Plan.model_validate({**VALUES, "task": {**VALUES["task"], **task}})  # type: ignore[dict-item]


TABLE: dict[str, object] = {
    "label": "y", "numeric": ["weight", "age"], "categorical": {"sex": ["F", "M"], "drug": ["A", "B"]},
    "ranges": {"weight": [0, 500], "age": [0, 120]}, "rows": {"wave": [2], "arm": [1]},
    "missing_of": {"weight": "zero", "age": "mean"}, "missing_values_of": {"weight": [0], "age": [-1]},
    "dates": {"weight": "%Y", "age": "%m/%Y"}, "train_of": {"b": "b.csv", "a": "a.csv", "c": "c.csv"},
}  # fmt: skip
"""Every mapping of a table, in another order than that of its names."""


def test_every_mapping_of_a_table_is_in_the_example() -> None:
    mappings = {name for name, one in CsvData.model_fields.items() if get_origin(one.annotation) is dict}
    assert {name for name, value in TABLE.items() if isinstance(value, dict)} == mappings


@pytest.mark.parametrize("name", [name for name, value in TABLE.items() if isinstance(value, dict)])
def test_two_plans_of_one_digest_have_their_features_in_one_order(name: str) -> None:
    """Two sites under one digest whose columns differ would add each other's features up."""
    mapping = TABLE[name]
    assert isinstance(mapping, dict)
    stated, turned = plan_of_table(TABLE), plan_of_table({**TABLE, name: dict(sorted(mapping.items()))})
    same_features = declared_schema(stated) == declared_schema(turned)
    assert (digest(stated) == digest(turned)) is same_features


def test_categorical_columns_in_the_order_of_their_names_are_written_as_a_mapping() -> None:
    """Plans that were approved before their order counted keep their digest."""
    categorical = {"drug": ["A", "B"], "sex": ["F", "M"]}
    plan = plan_of_table({**TABLE, "categorical": categorical})
    assert json.loads(canonical_plan(plan))["task"]["data"]["csv"]["categorical"] == categorical
