"""`fedfair privacy`: what a site's ledger holds, and the one sentence that may be said of its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from fedfair.errors import PrivacyError
from fedfair.policy.site_config import load_site_config
from fedfair.process.terminal import DEBUG_HELP, console, say
from fedfair.wire.frames import showable

if TYPE_CHECKING:
    from collaborator.ledger import RollbackGuard
    from fedfair.privacy.budget import Budget
    from fedfair.privacy.entries import Written
    from fedfair.privacy.spending import RepeatedRelease, Spending

app = typer.Typer(no_args_is_help=True, epilog=DEBUG_HELP)

USUAL_DELTA = 1e-5


@app.command()
def show(
    config: Path = typer.Option(
        Path("collaborator.yaml"), "--config", "-c", help="This site's own configuration."
    ),
    ledger: Path | None = typer.Option(None, "--ledger", help="Read this ledger instead of the site's own."),
    delta: float | None = typer.Option(
        None, "--delta", min=1e-300, max=0.999999, help="State epsilon at this delta instead of the budget's."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Show every release in the ledger by data set and plan, its total cost, and what is left of the budget."""
    from collaborator.ledger import Ledger
    from fedfair.privacy.spending import data_sets, spending

    path, budget, witness = (ledger, None, None) if ledger is not None else _of_site(config)
    if not path.exists():
        raise PrivacyError(
            f"{path}: there is no ledger here, so past releases are unknown",
            "a ledger begins with the first plan with differential privacy, or with a budget in collaborator.yaml",
        )
    entries = Ledger(path, witness).look()
    stated = delta or (USUAL_DELTA if budget is None else budget.delta)
    found = [spending(entries, name, stated, budget) for name in data_sets(entries)]
    if as_json:
        console.print_json(json.dumps(_json(path, found, stated, budget)))
        return
    for one in found:
        _print(one, budget)


def _of_site(config: Path) -> tuple[Path, Budget | None, RollbackGuard]:
    from collaborator.ledger import witness_of
    from fedfair.privacy.budget import Budget

    site = load_site_config(config)
    path = config.parent / "ledger.sqlite" if site.ledger is None else Path(site.ledger)
    budget = None if site.budget is None else Budget(site.budget.epsilon, site.budget.delta)
    return path, budget, witness_of(config.parent / "state", site.collaborator)


def _print(found: Spending, budget: Budget | None) -> None:
    title = "all records" if found.data_set is None else f"data set {found.data_set}"
    table = Table(title=Text(showable(title)), title_justify="left", box=None)
    for heading in ("federation", "plan", "released", "noise", "sampling", "clip", "steps", "when"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "plan")
    for line in found.lines:
        table.add_row(*(Text(showable(word)) for word in _row(line)))
    console.print(table)
    _say(found.statement or f"{found.refusal}.")
    if budget is not None:
        left = "what is left is unknown" if found.left is None else f"{found.left:.4g} is left"
        _say(f"Budget: {budget}; {left}.")


def _row(line: RepeatedRelease) -> tuple[str, ...]:
    first, last = line.first[:10], line.last[:10]
    when = first if first == last else f"{first} to {last}"
    noise, sampling, clip, steps = _numbers(line.release)
    plan = line.origin.plan_digest.removeprefix("sha256:")[:12]
    return (
        line.origin.federation,
        plan,
        line.release.purpose,
        noise,
        sampling,
        clip,
        steps or str(line.entries),
        when,
    )


def _numbers(release: Written) -> tuple[str, str, str, str]:
    from fedfair.privacy.releases import GaussianRelease, SharedNoiseRelease, SkellamRelease

    match release:
        case GaussianRelease(_, noise, rate, steps, clip):
            return f"{noise:g}", f"{rate:.4g}", "-" if clip is None else f"{clip:g}", str(steps)
        case SharedNoiseRelease(_, noise, steps):
            return f"{noise:.4g}, shared", "-", "-", str(steps)
        case SkellamRelease(mu=mu, count=count):
            return f"of all collaborators, mu={mu:.4g}", "-", "-", str(count)
        case _:
            return "NONE", "-", "-", ""


def _json(path: Path, found: list[Spending], delta: float, budget: Budget | None) -> dict[str, object]:
    return {
        "format": "fedfair/ledger/1",
        "ledger": str(path),
        "delta": delta,
        "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
        "data_sets": [
            {
                "name": one.data_set,
                "releases": [_line_json(line) for line in one.lines],
                "epsilon": one.spent,
                "statement": one.statement or None,
                "refusal": one.refusal or None,
                "left": one.left,
            }
            for one in found
        ],
    }


def _line_json(line: RepeatedRelease) -> dict[str, object]:
    from fedfair.privacy.entries import LedgerEntry

    as_entry = LedgerEntry(line.last, line.origin, line.release)
    return {
        "participant": line.origin.participant,
        "federation": line.origin.federation,
        "plan_digest": line.origin.plan_digest,
        "data_set": line.origin.data_set,
        "kind": as_entry.kind,
        **json.loads(as_entry.parameters),
        "entries": line.entries,
        "first": line.first,
        "last": line.last,
    }


def _say(text: str) -> None:
    say(showable(text, len(text)))
