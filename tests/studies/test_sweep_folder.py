import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest

from fedfair.errors import DataError, PlanError
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.results.document import JsonObject, ResultDocument, to_json
from fedfair.results.reading import read_result
from fedfair.simulation.simulate import simulate
from fedfair.studies.sweep.events import Event, Failure
from fedfair.studies.sweep.execution import Outcome, run_points, run_stages
from fedfair.studies.sweep.folder import SweepFolder
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.runner import PointRunner
from tests.studies.sweep_kit import PLAN, document, grid, in_order, untimed


def opened(path: Path, text: str = PLAN, workspace: Path = Path()) -> SweepFolder:
    folder = SweepFolder(path)
    folder.open(validated(Plan, document(text)), workspace)
    return folder


def as_json(results: Mapping[str, ResultDocument]) -> JsonObject:
    return {name: to_json(result) for name, result in results.items()}


def run(folder: SweepFolder, points: tuple[Point, ...]) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    return run_points(points, folder, in_order, events.append), events


def test_records_are_loaded_once_for_points_that_share_them(tmp_path: Path) -> None:
    loader = """
import numpy as np

def load(folder):
    with (folder / "calls").open("a") as log:
        log.write("loaded\\n")
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
"""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "counted.py").write_text(loader)
    text = PLAN.replace("data: breast-cancer", 'data: "counted:load"').replace("linear}", "linear}\n  classes: 2")
    # The seed deals the records, so it is another set for another seed, although the grid varies it fastest.
    points = grid("learning_rate=0.1,0.2,0.3", "seed=0,1", text=text)
    outcome = run_points(
        points, opened(tmp_path / "sweep", text, tmp_path), lambda left: in_order(left, tmp_path), lambda _: None
    )
    assert len(outcome.results) == 6
    assert (tmp_path / "calls").read_text().count("loaded") == 2


def test_the_points_of_a_stage_come_before_those_of_the_next_and_none_comes_twice(tmp_path: Path) -> None:
    told: list[Point] = []

    def engine(left: Sequence[Point]) -> Generator[Event, None, None]:
        told.extend(left)
        return in_order(left)

    stages = [grid("tradeoff=0.5"), grid("tradeoff=0.1,0.5")]
    assert len(run_stages(stages, opened(tmp_path), engine, lambda _: None).results) == 2
    assert [point.plan.objective.tradeoff for point in told] == [0.5, 0.1]


def test_points_are_results_of_simulate_and_a_restart_runs_only_the_rest(tmp_path: Path) -> None:
    # Three points over one set of records and one over another: what is kept in memory must not be used up.
    points = grid("learning_rate=0.1,0.2", "seed=0,1")
    outcome, _ = run(opened(tmp_path), points)
    for point in points:
        alone = to_json(simulate(point.plan, Path()).result)
        assert untimed(alone) == untimed(to_json(outcome.results[point.id]))
    points = grid("tradeoff=0.1,0.5")
    run(opened(tmp_path), points)
    for point in points:
        path = tmp_path / "points" / f"{point.id}.json"
        assert read_result(path).algorithm == "fedsrcvar"
        assert json.loads(path.read_text())["sweep"] == {"id": point.id, "settings": point.settings}
    points = grid("tradeoff=0.1,0.5", "learning_rate=0.1,0.2")
    whole, _ = run(opened(tmp_path / "whole"), points)
    folder = opened(tmp_path / "stopped")
    run(folder, points[:2])
    resumed, events = run(opened(tmp_path / "stopped"), points)
    assert [event.point.id for event in events] == [point.id for point in points[2:]]
    assert untimed(as_json(resumed.results)) == untimed(as_json(whole.results))
    run(opened(tmp_path), grid("tradeoff=0.1,0.5"))
    grown = grid("tradeoff=0.1,0.3,0.5")
    _, events = run(opened(tmp_path), grown)
    assert [event.point.settings for event in events] == [{"tradeoff": 0.3}]


def test_changed_plans_code_and_versions_are_refused_and_new_keys_are_not(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(PlanError, match=r"training\.rounds: 5 there, 6 now") as refusal:
        opened(tmp_path, PLAN.replace("rounds: 5", "rounds: 6"))
    assert "--output" in refusal.value.remedy
    opened(tmp_path, PLAN.replace("rounds: 5", "rounds: 5, seed: 0"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "own.py").write_text("def load(folder): ...")
    text = PLAN.replace("data: breast-cancer", 'data: "own:load"')
    opened(tmp_path / "sweep", text, tmp_path)
    (tmp_path / "src" / "own.py").write_text("def load(folder): ... ")
    with pytest.raises(PlanError, match=r"code\.src/own\.py"):
        opened(tmp_path / "sweep", text, tmp_path)
    opened(tmp_path)
    place = tmp_path / "sweep.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"base": "0" * 16}))
    with pytest.raises(PlanError, match="by an earlier version of fedfair") as refusal:
        opened(tmp_path)
    assert "--output" in refusal.value.remedy
    later = tmp_path / "later"
    opened(later)
    place = later / "sweep.json"
    manifest = json.loads(place.read_text())
    del manifest["plan"]["evaluation"]["site_means"]
    place.write_text(json.dumps(manifest))
    opened(later)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    for folder in (other, other / "thesis.tex"):
        with pytest.raises(PlanError, match="no folder of a sweep"):
            opened(folder)
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", "[]", '{"format": "fedfair/result/2"}', '{"format": "fedfair/resu'])
def test_a_point_file_that_no_sweep_wrote_is_named(tmp_path: Path, content: str) -> None:
    folder = opened(tmp_path)
    (point,) = grid("tradeoff=0.1")
    (tmp_path / "points" / f"{point.id}.json").write_text(content)
    with pytest.raises(DataError, match=point.id) as refusal:
        folder.finished([point])
    assert "delete it" in refusal.value.remedy


def test_a_failed_point_is_tried_again_and_its_record_goes_when_it_succeeds(tmp_path: Path) -> None:
    text = PLAN.replace(
        "data: breast-cancer", "data: {csv: {train: T.csv, label: y, label_values: [0, 1], numeric: [x]}}"
    )
    text = text.replace("dirichlet, alpha: 0.5", "random")
    points = grid("tradeoff=0.1", text=text)
    folder = opened(tmp_path / "sweep", text)

    def engine(left: Sequence[Point]) -> Generator[Event, None, None]:
        return in_order(left, tmp_path)

    missing = run_points(points, folder, engine, lambda _: None)
    assert "T.csv" in missing.failures[points[0].id].message
    (tmp_path / "T.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(60)))
    again = run_points(points, folder, engine, lambda _: None)
    assert again.failures == {}
    assert list((tmp_path / "sweep" / "failed").iterdir()) == []
    assert len(again.results) == 1


def test_a_failed_point_is_recorded_and_a_broken_off_sweep_leaves_finished_ones(tmp_path: Path) -> None:
    # 1e300 is no float32, in which the plan trains.
    points = grid("learning_rate=1e300,0.1,0.2")
    outcome, events = run(opened(tmp_path), points)
    assert [type(event.said) for event in events] == [Failure, ResultDocument, ResultDocument]
    (identity,) = outcome.failures
    assert identity == points[0].id
    recorded = json.loads((tmp_path / "failed" / f"{identity}.json").read_text())
    assert recorded["settings"] == {"learning_rate": 1e300}
    assert recorded["message"] == outcome.failures[identity].message != ""
    assert not (tmp_path / "points" / f"{identity}.json").exists()
    points = grid("tradeoff=0.1,0.2,0.3")

    def interrupted(_: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_points(points, opened(tmp_path / "broken"), in_order, interrupted)
    assert [path.stem for path in (tmp_path / "broken" / "points").iterdir()] == [points[0].id]
    assert len(run(opened(tmp_path / "broken"), points)[1]) == 2
    seen: list[int] = []
    (point,) = grid("rounds=3")
    PointRunner(tmp_path).outcome(point.plan, seen.append)
    assert seen[-1] == 3
    assert seen == sorted(seen)
