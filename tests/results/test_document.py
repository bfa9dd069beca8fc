"""The one model of a result: what it writes is what was always written, and what it publishes says the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from fedfair.report.shown import shown
from fedfair.results.document import ResultDocument, UnfinishedResult, to_json, to_text
from fedfair.results.json_schema import result_schema
from fedfair.results.reading import parse_result
from tests.conftest import REPOSITORY
from tests.result_files import complete, oldest
from tests.results.test_result import deployed, make_plan, simulated

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
SHOWN = json.loads((Path(__file__).parent / "shown.json").read_text())
RESULTS = [
    path
    for path in sorted((REPOSITORY / "docs" / "results").rglob("*.json"))
    if "fedfair/result/" in path.read_text()
]
SCHEMA = Draft202012Validator(result_schema())


def model(name: str) -> type[ResultDocument | UnfinishedResult]:
    return UnfinishedResult if name == "failed" else ResultDocument


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_result_is_written_as_it_was_before_there_was_one_model_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    # Strictly: no value is of another type than the one that is built.
    assert to_text(model(path.stem).model_validate_json(text)) == text


@pytest.mark.parametrize(
    ("kept", "result"),
    [
        ("built-simulated", simulated(make_plan())),
        ("built-simulated-small-groups", simulated(make_plan(min_group=2))),
        ("built-deployed-small-groups", deployed(make_plan(min_group=2))),
    ],
)
def test_a_result_is_built_as_it_was(kept: str, result: dict[str, Any]) -> None:
    before = json.loads((Path(__file__).parent / "kept" / f"{kept}.json").read_text())
    for later in ("verdict", "calibration"):  # these were written before there was one
        result.pop(later)
    # Which software ran is the machine's business.
    assert json.dumps(result | {"versions": None}) == json.dumps(before | {"versions": None})


@pytest.mark.parametrize("name", SHOWN)
def test_a_report_as_json_has_the_fields_that_it_always_had(name: str) -> None:
    handmade = {"oldest": oldest(), "complete": complete()}
    path = Path(__file__).parent / "kept" / f"{name}.json"
    text = json.dumps(handmade[name]) if name in handmade else path.read_text()
    assert json.dumps(shown(parse_result(text, name))) == json.dumps(SHOWN[name])


def test_other_types_and_newer_fields_are_read() -> None:
    document = parse_result(json.dumps(oldest() | {"rounds": "20"}), "here")
    assert document.rounds == 20
    with pytest.raises(ValidationError):
        ResultDocument.model_validate(document.model_dump() | {"rounds": "20"})
    newer = complete() | {"new": 1, "privacy": {"sample_level": None, "pufferfish": {"epsilon": 1.0}}}
    document = parse_result(json.dumps(newer), "here")
    assert "new" not in to_json(document)
    assert document.privacy.promises() == {"pufferfish": {"epsilon": 1.0}}


# ------------------------------------------------------------------ the published schema


@pytest.mark.parametrize("path", [*KEPT, *RESULTS], ids=lambda path: path.stem)
def test_every_result_fits_the_schema(path: Path) -> None:
    SCHEMA.validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "fedfair/result/2"}, {"rounds": "twenty"}, {"train": 3}, {"setting": "dream"},
        {"history": [{"round": 1}]}, {"timing": {"seconds": None}},
    ],
)  # fmt: skip
def test_a_damaged_result_does_not_fit_the_schema(damage: dict[str, Any]) -> None:
    assert not SCHEMA.is_valid(complete() | damage)


def test_the_schema_is_one_that_results_fit() -> None:
    Draft202012Validator.check_schema(result_schema())
    for result in (oldest(), complete()):
        SCHEMA.validate(result)
    assert not SCHEMA.is_valid({key: value for key, value in complete().items() if key != "threshold"})
