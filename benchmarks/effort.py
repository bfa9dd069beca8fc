"""How many commands and lines it takes from an own CSV file to a federated model in use at a site.

fedfair's side is counted from its own pages, which a test runs as they stand: the commands of the deployment in
`README.md` up to the start, and the command by which `docs/how-to/use-a-model.md` predicts. Lines
are those of the plan that `fedfair workspace create --template csv` writes. So the figures follow the pages.

The sides of Flower and OpenFL are constants, counted by hand from what they publish; `SOURCES` says from what, and
in which version. Lines of Python are those with code, without comments and docstrings.

    python benchmarks/effort.py            # the figures, as JSON
    python benchmarks/effort.py --write    # writes the table of docs/explain/effort.md
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DEPLOYMENT = REPOSITORY / "README.md"
USE = REPOSITORY / "docs" / "how-to" / "use-a-model.md"
PAGE = REPOSITORY / "docs" / "explain" / "effort.md"
LEAD = "lead"

_BLOCK = re.compile(r"(<!-- not run[^\n]*-->\n)?```console\n(.*?)```", re.DOTALL)
_TABLE = re.compile(r"(?<=<!-- table: benchmarks/effort.py --write -->\n\n).*?(?=\n\n)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort that one system takes.

    Attributes:
        lead: commands of the lead with two sites, without copying files, changing folders and installing.
        site: commands of each site, without the prediction.
        predict: commands that predict new records at a site; 0 where own code does it.
        code: lines of Python to write or change.
        settings: lines of YAML or TOML to write or change.
    """

    lead: int
    site: int
    predict: int
    code: int
    settings: int


FLOWER = (
    "`flwr new` with its PyTorch template: `client_app` 53, `server_app` 23 and `task` 73 lines; eleven keys of "
    "`pyproject.toml`. Example flower-authentication: keys and certificates by a script for all, "
    "`flower-superlink`, `flwr run`; `flower-supernode` at each site"
)
OPENFL = (
    "template torch/mnist: `dataloader` 68, `taskrunner` 26 and `cnn_model` 52 lines, `plan.yaml` 51. The page "
    "TaskRunner API: create, initialize, certify, request and sign the aggregator, export, sign two sites, start, "
    "save the model; at each site import, create, request, install, start"
)
SOURCES = {
    "Flower 1.22, its template": (Effort(lead=4, site=1, predict=0, code=149, settings=11), FLOWER),
    "OpenFL 1.9": (Effort(lead=10, site=5, predict=0, code=146, settings=51), OPENFL),
}
"""The other systems, and what was counted."""


def fedfair() -> Effort:
    """Return what fedfair takes, counted from its pages."""
    from fedfair.workspace.create import plan_text

    hosts: Counter[str] = Counter()
    lines = [
        line
        for skipped, block in _BLOCK.findall(DEPLOYMENT.read_text(encoding="utf-8"))
        for line in ([] if skipped else block.splitlines())
    ]
    last = max(place for place, line in enumerate(lines) if line.endswith(" start") or " start " in line)
    for line in lines[: last + 1]:
        host, mark, command = line.partition("$ ")
        if mark:
            hosts[host] += sum(part.strip().startswith("fedfair ") for part in command.split("&&"))
    predictions = re.findall(r"^\$ fedfair predict ", USE.read_text(encoding="utf-8"), re.MULTILINE)
    plan = [line.strip() for line in plan_text("own", "csv").splitlines()]
    return Effort(
        lead=hosts.pop(LEAD),
        site=max(hosts.values()),
        predict=min(1, len(predictions)),
        code=0,
        settings=sum(bool(line) and not line.startswith("#") for line in plan),
    )


def figures() -> dict[str, Effort]:
    """Return the effort of every system by its name."""
    return {"fedfair": fedfair(), **{name: effort for name, (effort, _) in SOURCES.items()}}


def table() -> str:
    """Return the figures as the table of the page."""
    columns = ("commands of the lead, two sites", "of each site", "to predict at a site")
    head = f"| | {' | '.join(columns)} | lines of Python | lines of settings |"
    rows = [
        f"| {name} | {one.lead} | {one.site} | {one.predict or 'own code'} | {one.code} | {one.settings} |"
        for name, one in figures().items()
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def page(text: str) -> str:
    """Return the page with today's table."""
    return _TABLE.sub(lambda _: table(), text, count=1)


def main() -> None:
    """Print the figures, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of docs/explain/effort.md")
    if parser.parse_args().write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    json.dump({name: asdict(effort) for name, effort in figures().items()}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
