"""Sites whose plan picks a few people by a filter: over real sockets, nobody sees who holds them."""

import json
from pathlib import Path

import yaml

from fedfair.cli.loopback import Workspace, prepare
from tests.attacks.test_two_views_of_one_round import until_served
from tests.interop.federation_kit import FIVE, Federation, play
from tests.plans import small_plan

RECORDS = 120
PATIENT, HOLDER = 7, "clinic-c"


def federation(folder: Path, rows: dict[str, list[object]]) -> Workspace:
    """Return five sites, of which one alone has the patient, under a plan that takes these rows."""
    plan = small_plan(rounds=1, protection={"mode": "malicious"}, names=FIVE)
    table = {"label": "died", "numeric": ["age"], "categorical": {"ward": ["a", "b"]}, "rows": rows}
    plan["task"] = {
        "data": {"csv": table},
        "standardize": "secure",
        "model": {"name": "linear", "init": "zeros"},
        "test_fraction": 0.4,
    }
    workspace = prepare(folder, plan)
    for place, name in enumerate(FIVE):
        lines = ["patient,ward,age,died"]
        for row in range(RECORDS):
            patient = PATIENT if name == HOLDER and row == 0 else 1000 * (place + 1) + row
            ward = "ab"[name != HOLDER and row % 2]
            lines.append(f"{patient},{ward},{20 + (row * 7 + place) % 60},{row % 3 // 2}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        file = folder / f"{name}.yaml"
        stated = yaml.safe_load(file.read_text()) | {"data": {"train": f"{name}.csv"}}
        stated["policy"] |= {"rows": "any", "min_records": 20}
        file.write_text(yaml.safe_dump(stated))
    return workspace


def sent_by(workspace: Workspace, name: str) -> list[tuple[str, int]]:
    """Return the kind and the length of everything that a site has sent, by its own record."""
    lines = (workspace.folder / "egress" / f"{name}.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [(str(entry.get("kind")), int(entry.get("bytes", 0))) for entry in entries if "kind" in entry]


def test_a_filter_that_one_site_alone_has_rows_of_trains_as_if_that_site_had_none(tmp_path: Path) -> None:
    """Ward b is at four sites; the fifth has no row of it, and takes part in every sum all the same."""
    workspace = federation(tmp_path, {"ward": ["b"]})
    assert play(workspace, Federation.everybody).state.value == "finished"
    result = json.loads(workspace.result.read_text())
    assert (result["train"]["n"], result["test"]["n"]) == (4 * 36, 4 * 24)
    assert len({tuple(sent_by(workspace, name)) for name in FIVE}) == 1
    assert sent_by(workspace, HOLDER)


def test_a_filter_on_one_patient_ends_at_every_site_in_the_same_way(tmp_path: Path) -> None:
    workspace = federation(tmp_path, {"patient": [PATIENT]})

    async def until_the_end(playing: Federation) -> None:
        for name in FIVE:
            (words,) = playing.ready(name).withheld
            assert ("1 training" if name == HOLDER else "0 training") in words
        await until_served(playing, FIVE)

    ending = play(workspace, until_the_end)
    assert ending.state.value == "aborted"
    assert "over 0 training records: no site takes part with as many records as its own policy" in ending.words
    assert len({tuple(sent_by(workspace, name)) for name in FIVE}) == 1
