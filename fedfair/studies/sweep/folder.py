"""Stores a sweep: one file for each finished point, written whole, so that a restart resumes.

    sweep.json           the base plan that all points vary, and the code that it names
    points/<id>.json     the result of a finished point (`fedfair/result/1`), with its settings under "sweep"
    failed/<id>.json     why a point has no result; gone when it gets one
    table.csv, table.json

A folder belongs to one base plan; the grid may grow, shrink or change from run to run. Data files are not looked
at: a user who changes them under the same names takes another folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedfair.errors import DataError, PlanError
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.results.document import Json, JsonObject, ResultDocument, to_json
from fedfair.results.reading import parse_result
from fedfair.store.atomic_file import write_whole
from fedfair.studies.sweep.events import Failure
from fedfair.studies.sweep.grid import Point, point_id

FORMAT = "fedfair/sweep/1"
MAX_DIFFERENCES = 5

_OBJECT: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])


class SweepFolder:
    """The folder of one sweep.

    Args:
        path: where it is, or will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, base: Plan, workspace: Path) -> None:
        """Take the folder for a base plan, making it where it is not there.

        Raises:
            PlanError: the folder belongs to another base plan, or holds something else.
            OSError: it cannot be made.
        """
        own = _manifest(base, workspace)
        place = self.path / "sweep.json"
        if place.is_file():
            _check_same(_read(place), own, self.path)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise PlanError(
                f"{self.path} is there already and is no folder of a sweep", "name another by --output"
            )
        for name in ("points", "failed"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        if not place.is_file():
            _write(place, own)

    def finished(self, points: Iterable[Point]) -> dict[str, ResultDocument]:
        """Return the results of those points that have one, by their identity.

        Raises:
            DataError: a file is not what a sweep writes.
        """
        there = {point.id: self._result_path(point) for point in points}
        return {identity: _read_result(path) for identity, path in there.items() if path.is_file()}

    def keep(self, point: Point, result: ResultDocument) -> None:
        """Record the result of a point, with the settings that belong to it."""
        settings: Json = {"id": point.id, "settings": dict(point.settings)}
        _write(self._result_path(point), to_json(result) | {"sweep": settings})
        self._failure_path(point).unlink(missing_ok=True)

    def keep_failure(self, point: Point, failure: Failure) -> None:
        """Record why a point has no result."""
        settings: Json = dict(point.settings)
        _write(
            self._failure_path(point),
            {"id": point.id, "settings": settings, "message": failure.message, "remedy": failure.remedy},
        )

    def _result_path(self, point: Point) -> Path:
        return self.path / "points" / f"{point.id}.json"

    def _failure_path(self, point: Point) -> Path:
        return self.path / "failed" / f"{point.id}.json"


def _manifest(base: Plan, workspace: Path) -> JsonObject:
    code: Json = {name: digest.hex() for name, digest in code_digests(base.task.references, workspace).items()}
    return {"format": FORMAT, "base": point_id(base), "plan": base.model_dump(mode="json"), "code": code}


def _check_same(there: Mapping[str, object], own: JsonObject, path: Path) -> None:
    if there.get("format") != FORMAT:
        raise PlanError(f"{path / 'sweep.json'} has format {there.get('format')!r}, expected {FORMAT!r}")
    # A key that is new since then, with its default, is in the plan's values and not in its identity.
    if all(there.get(name) == own[name] for name in ("base", "code")):
        return
    before, now = (_leaves(manifest) for manifest in (there, own))
    changed = [
        f"{place}: {json.dumps(before.get(place))} there, {json.dumps(now.get(place))} now"
        for place in sorted({*before, *now} - {"base"})
        if before.get(place) != now.get(place)
    ]
    if not changed:
        raise PlanError(
            f"{path} holds a sweep of this plan by an earlier version of fedfair, which named points otherwise",
            "name another folder by --output",
        )
    more = [f"and {len(changed) - MAX_DIFFERENCES} more"] if len(changed) > MAX_DIFFERENCES else []
    raise PlanError(
        "\n  ".join([f"{path} holds a sweep of another base plan:", *changed[:MAX_DIFFERENCES], *more]),
        "name another folder by --output, or restore the plan; what differs between points belongs into --grid",
    )


def _leaves(value: object, place: str = "") -> dict[str, object]:
    """Return every value of a nested mapping by its dotted place."""
    if not isinstance(value, Mapping):
        return {place: value}
    inner = (_leaves(item, f"{place}.{key}".removeprefix(".")) for key, item in value.items())
    return {name: leaf for leaves in inner for name, leaf in leaves.items()}


def _read_result(path: Path) -> ResultDocument:
    try:
        return parse_result(path.read_bytes(), str(path))
    except DataError as fault:
        raise DataError(fault.message, "delete it, and it is made again") from fault


def _read(path: Path) -> JsonObject:
    try:
        return _OBJECT.validate_json(path.read_bytes())  # type: ignore[return-value]
    except ValidationError as error:
        raise DataError(f"{path} is not a file that a sweep wrote", "delete it, and it is made again") from error


def _write(path: Path, content: JsonObject) -> None:
    write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
