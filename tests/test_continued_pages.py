"""The pages about runs that begin elsewhere than at a seed: their commands run as they are written.

What the pages leave to the reader (archives that travel, folders, the other clinics, the start) stands here, and
every command of a page is run once, in its order.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from by_the_readme import commands_of, run
from fedfair.plan.loading import load_plan
from tests.conftest import REPOSITORY
from tests.fork_server import commands

HOW_TO = REPOSITORY / "docs" / "how-to"
THREE = ("clinic-a", "clinic-b", "clinic-c")
FOUR = (*THREE, "clinic-d")
ASKS = ("fedfair admit ", "fedfair plan approve ")
"""Commands that ask for a confirmation, which the pages leave to the person who types them."""


ANSWERED = " --yes --authority shown --approve shown"
"""Answers of a newcomer in a rehearsal, where no fingerprint is read aloud."""

DIGEST = "fedfair -C heart plan digest --json | python -c "
DIGEST += """'import json, sys; print(json.load(sys.stdin)["beginning_digest"])'"""
"""Prints what the newcomer is told by phone."""


class Page:
    """The commands of a page, each of which is taken once and in its order."""

    def __init__(self, name: str) -> None:
        self._commands: Iterator[tuple[str, str]] = commands_of(HOW_TO / name)

    def next(self, host: str, begin: str) -> str:
        """Return the next command as a line, which is this host's and begins like this."""
        found, command = next(self._commands)
        assert (found, command[: len(begin)]) == (host, begin)
        agreed = " --yes" if command.startswith(ASKS) and "--yes" not in command else ""
        return f"{host}$ {command}{agreed}"

    def ends(self) -> None:
        """Refuse a page with commands that nobody has taken."""
        assert list(self._commands) == []


def written(folder: Path, lines: list[str]) -> Path:
    """Return a page with these lines, and a folder for its hosts beside it."""
    page = folder / "page.md"
    page.write_text("```console\n" + "\n".join(lines) + "\n```\n")
    (folder / "hosts").mkdir()
    return page


def sent(folder: str, archive: str, sites: tuple[str, ...]) -> list[str]:
    return [f"lead$ cd $HOSTS/lead/{folder}", *(f"lead$ scp {archive} {site}:" for site in sites)]


def started(folder: str, sites: tuple[str, ...]) -> list[str]:
    return [
        f"lead$ fedfair -C $HOSTS/lead/{folder} aggregator start",
        *(f"{site}$ fedfair -C $HOSTS/{site}/{folder} collaborator start" for site in sites),
    ]


def finished_run_of_three() -> list[str]:
    """Return the deployment of the README, with three rounds."""
    lines = [
        f"{host}$ {command}"
        for host, command in commands_of(REPOSITORY / "README.md")
        if host in {"lead", *THREE} and command != "fedfair report"
    ]
    return [lines[0], "lead$ sed -i 's/rounds: 100/rounds: 3/' plan/plan.yaml", *lines[1:]]


@pytest.mark.slow
def test_a_fourth_hospital_and_more_rounds_by_the_commands_of_their_pages(tmp_path: Path) -> None:
    sites, rounds = Page("more-sites.md"), Page("more-rounds.md")
    lines = [
        *finished_run_of_three(),
        # Four hospitals.
        "lead$ cd $HOSTS/lead",
        sites.next("lead", "mkdir four"),
        sites.next("lead", "sed -i"),
        sites.next("lead", "fedfair plan freeze --from"),
        sites.next("lead", "fedfair invite"),
        sites.next("lead", "scp heart.zip"),
        sites.next("clinic-d", "fedfair join"),
        sites.next("lead", "fedfair admit"),
        sites.next("lead", "for site in"),
    ]
    approving = [
        sites.next("clinic-a", begin) for begin in ("fedfair workspace import", "cp", "cd", "fedfair plan approve")
    ]
    lines += [*approving[:-1], approving[-1] + " > ../told.txt"]
    lines += [line.replace("clinic-a", site) for site in ("clinic-b", "clinic-c") for line in approving]
    # The newcomer's policy refuses weights of which it knows nothing, and names them.
    lines += [sites.next("clinic-d", "fedfair join") + f"{ANSWERED} > refused.txt 2>&1 || test $? = 2"]
    named = sites.next("clinic-d", "sed -i").replace("sha256:5b1c...", "'$digest'")
    lines += [
        named.replace("clinic-d$ ", f"clinic-d$ digest=$({DIGEST}); "),
        sites.next("clinic-d", "fedfair join") + f"{ANSWERED} && ln -s heart four",
    ]
    sites.ends()
    lines += [
        *started("four", FOUR),
        # And 50 rounds more with the three.
        "lead$ cd $HOSTS/lead/heart",
        rounds.next("lead", "fedfair plan extend"),
        rounds.next("lead", "fedfair workspace export"),
        *sent("heart", "heart.zip", THREE),
        *(f"{site}$ cd $HOSTS/{site}/heart && mv ../heart.zip ." for site in THREE),
        rounds.next("clinic-a", "fedfair workspace import"),
        rounds.next("clinic-a", "fedfair plan approve") + " > ../told-again.txt",
    ]
    for site in ("clinic-b", "clinic-c"):
        lines += [
            f"{site}$ fedfair workspace import heart.zip --update --yes",
            f"{site}$ fedfair plan approve --name {site} --yes",
        ]
    rounds.ends()
    page, hosts = written(tmp_path, [*lines, *started("heart", THREE)]), tmp_path / "hosts"
    run(page, hosts, commands(hosts))
    lead = tmp_path / "hosts" / "lead"
    three, four = lead / "heart", lead / "four"
    (first,) = (three / "earlier").glob("*/result.json")
    ended, begun = json.loads(first.read_text()), json.loads((four / "result.json").read_text())
    longer = json.loads((three / "result.json").read_text())
    assert (ended["rounds"], begun["rounds"], longer["rounds"]) == (3, 3, 53)
    assert {each["state"] for each in (ended, begun, longer)} == {"finished"}
    assert load_plan(four / "plan" / "plan.yaml").training.initial is not None
    # The old model is evaluated over the three alone.
    assert ended["history"][0]["round"] == 0
    assert all(past["round"] > 0 for past in begun["history"])
    refused = (tmp_path / "hosts" / "clinic-d" / "refused.txt").read_text()
    assert "that are of no run of which this site has a copy" in " ".join(refused.split())
    told = (tmp_path / "hosts" / "clinic-a" / "told.txt").read_text()
    assert re.search(r"are\s+those\s+of\s+clinic-a's\s+own\s+copy", told), told
    told = (tmp_path / "hosts" / "clinic-a" / "told-again.txt").read_text()
    assert re.search(r"in\s+which\s+clinic-a\s+saw\s+the\s+earlier\s+run\s+end", told), told


BACKBONE = """
from collections import OrderedDict
from torch import nn

def model(schema):
    return nn.Sequential(OrderedDict(body=nn.Linear(30, 4), act=nn.ReLU(), fc=nn.Linear(4, schema.classes)))
"""
SAVE = "import torch; torch.save({'body.weight': torch.ones(4, 30), 'body.bias': torch.zeros(4),"
SAVE += " 'fc.weight': torch.zeros(1000, 4), 'fc.bias': torch.zeros(1000)}, 'resnet18.pt')"


@pytest.mark.slow
def test_a_trained_model_by_the_commands_of_its_page(tmp_path: Path) -> None:
    page, text = Page("pretrained-models.md"), (HOW_TO / "pretrained-models.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "program.py").write_text("import fedfair\n" + program + "print(outcome.result.rounds)\n")
    (tmp_path / "backbone.py").write_text(BACKBONE)
    lines = [
        "lead$ fedfair workspace create heart && cd heart",
        "lead$ sed -i 's/rounds: 100/rounds: 3/' plan/plan.yaml",
        "lead$ fedfair simulate --model model.safetensors",
        page.next("lead", "fedfair plan freeze --from model.safetensors"),
        page.next("lead", "fedfair workspace export heart.zip"),
        "lead$ rm plan/plan.initial.yaml",
        "lead$ python $PAGE/program.py > rounds.txt",
        "lead$ cp $PAGE/backbone.py src/",
        "lead$ sed -i 's/{name: linear} .*/\"backbone:model\"/' plan/plan.yaml",
        f'lead$ python -c "{SAVE}"',
        page.next("lead", "fedfair plan freeze --from resnet18.pt") + " > told.txt",
    ]
    page.ends()
    hosts = tmp_path / "hosts"
    lead = run(written(tmp_path, lines), hosts, {"PAGE": str(tmp_path), **commands(hosts)})["lead"]
    assert (lead / "rounds.txt").read_text() == "3\n"
    told = (lead / "told.txt").read_text()
    # The lines that the page shows.
    for line in re.findall(r"^(?:the run begins with|with the plan's own).*$", text, re.MULTILINE):
        assert line in told
