"""The page of a year with three studies, run as it is written: clinics, a hub, a researcher, a folder each."""

import json
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest
import yaml

from by_the_readme import commands_of
from fedfair.consortium.acts import parse_act
from fedfair.plan.digest import format_digest
from tests.conftest import REPOSITORY
from tests.fork_server import ENVIRONMENT, started
from tests.patience import PATIENCE
from tests.standing.standing_kit import FIVE, NeverError, StandingFederation

PAGE = REPOSITORY / "docs" / "how-to" / "standing-federation.md"
WAITS = ("inbox show", "inbox approve", "inbox refuse", "study results", "study status")
"""Commands that somebody types again until what they ask about has happened."""


class Year:
    """The hosts of the page."""

    def __init__(self, folder: Path) -> None:
        self.federation = StandingFederation(folder).joined()
        for name in FIVE:
            home = self.federation.host(name)
            (home / "records.csv").write_text(_records(name))
            site = {
                "collaborator": name,
                "device": "cpu",
                "threads": 1,
                "data": {"train": "records.csv"},
                "budget": {"epsilon": 12.0},
                "policy": {"reveals": ["update-sums", "loss-sums", "feature-sums", "column-statistics"]},
            }
            (home / "collaborator.yaml").write_text(yaml.safe_dump(site))
            for person in ("amina", "jonas"):
                (home / f"{person}.txt").write_text(f"the passphrase of {person}\n")
        self.federation.host("bert").mkdir()

    def play(self) -> None:
        """Run every line of the page, with what a person does between them."""
        plans = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL))
        again = plans["risk/plan/plan.yaml"].replace("rounds: 20", "rounds: 30")
        for name, text in {**plans, "again/plan/plan.yaml": again}.items():
            path = self.federation.host("bert") / name
            path.parent.mkdir(parents=True)
            path.write_text(
                text.replace("hub.example.org", "localhost").replace("8443", str(self.federation.port))
            )
        for host, command in commands_of(PAGE):
            if host == "bert" and "certs install" in command:
                self._line(host, command)
            elif host == "clinic-a":
                for name in FIVE:
                    self._line(name, command.replace("clinic-a", name))
            else:
                self._line(host, command)

    def _line(self, host: str, command: str) -> None:
        place = "hub" if host == "lead" else host
        if command.endswith("&"):
            if place != "hub":
                self._approvers(place)
            self.federation.start(place)
        elif command.startswith("scp"):
            self._copy(place, shlex.split(command)[1:])
        else:
            if "hub members" in command:
                self._list_of_two()
            self._run(place, shlex.split(command)[1:])

    def _copy(self, place: str, words: list[str]) -> None:
        *files, target = words
        host, _, name = target.partition(":")
        for each in [host] if host != "clinic-a" else FIVE:
            folder = self.federation.host("hub" if each == "lead" else each)
            for file in files:
                shutil.copy(self.federation.host(place) / file, folder / (name if name != "." else file))

    def _run(self, place: str, words: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            process = started(
                ("-m", "fedfair", *self._with_digest(place, words)), self._folder(place), ENVIRONMENT
            )
            said, _ = process.communicate(timeout=PATIENCE)
            assert "Traceback" not in said, said
            if process.returncode == 0:
                self.said = said
                with (self.federation.folder / "said.txt").open("a") as target:
                    target.write(f"{place}$ {' '.join(words)}\n{said}\n")
                return
            if " ".join(words[:2]) not in WAITS or time.monotonic() > deadline:
                raise NeverError(f"{place}$ {' '.join(words)}\n{said}\n{self.federation.said()}")
            time.sleep(0.5)

    def _folder(self, place: str) -> Path:
        return self.federation.host(place)

    def _with_digest(self, place: str, words: list[str]) -> list[str]:
        """Write the digest that `inbox show` prints in the place of `shown`."""
        if "--digest" not in words:
            return words
        proposal = self.federation.study(place, words[2]).proposal
        digest = format_digest(parse_act(proposal.read_bytes()).plan_digest) if proposal.exists() else "sha256:"
        return [digest if word == "shown" else word for word in words]

    def _approvers(self, place: str) -> None:
        """Put the lines that `inbox person` has printed into approvers.yaml."""
        said = (self.federation.folder / "said.txt").read_text()
        lines = re.findall(rf"{place}\$ inbox person.*?\n.*?(  (?:amina|jonas): \{{.*?\}})", said, re.DOTALL)
        (self._folder(place) / "approvers.yaml").write_text("needed: 2\npeople:\n" + "\n".join(lines) + "\n")

    def _list_of_two(self) -> None:
        path = self._folder("hub") / "members.yaml"
        values = yaml.safe_load(path.read_text())
        key = (self._folder("bert") / "cert" / "bert" / "signing.pub").read_text().strip()
        values |= {"number": 2}
        values["members"]["bert"] = {"role": "researcher", "key": key}
        path.write_text(yaml.safe_dump(values, sort_keys=False))


def _records(name: str) -> str:
    """Return forty patients, of whom the older have the outcome more often."""
    start = FIVE.index(name)
    rows = [
        (30 + (7 * index + start) % 50, "FM"[index % 2], int((7 * index + start) % 50 > 25)) for index in range(40)
    ]
    return "age,sex,outcome\n" + "".join(f"{age},{sex},{outcome}\n" for age, sex, outcome in rows)


@pytest.mark.slow
def test_a_year_of_a_consortium_goes_as_the_page_says(tmp_path: Path) -> None:
    year = Year(tmp_path)
    try:
        year.play()
        bert = year.federation.host("bert")
        ages = json.loads((bert / "results" / "ages" / "result.json").read_text())
        assert ages["state"] == "finished"
        risk = json.loads((bert / "results" / "risk" / "result.json").read_text())
        assert risk["state"] == "finished"
        again = year.federation.until_hub("again", "refused")
        assert dict(again.refused)["clinic-b"] == "not twice"
        for name in FIVE:
            year.federation.until(lambda name=name: year.federation.phase(name, "risk") == "ended", name)
    finally:
        for host in tuple(year.federation.processes):
            year.federation.end(host, 9)
