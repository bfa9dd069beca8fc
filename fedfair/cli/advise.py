"""`fedfair plan advise`: which group size and which tradeoff make sense, by simulation on the plan's data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from pydantic import TypeAdapter, ValidationError

from fedfair.cli.interrupts import interrupts_deferred
from fedfair.errors import DataError, PlanError
from fedfair.plan.deployment import check_trains
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.process.terminal import console, say, tell
from fedfair.store.atomic_file import write_whole

if TYPE_CHECKING:
    from fedfair.plan.schema import Plan
    from fedfair.studies.advice.document import AdviceDocument
    from fedfair.studies.advice.search import AdviceGrid

PLAN_PLACE = Path("plan/plan.yaml")
SCHEMA = Path("schema")
"""Asks for the JSON Schema, unless there is a file of this name."""

ADVICE_FOLDER = Path("advice")
ADVICE, PAGE = "advice.json", "advice.html"
MAX_SETTINGS = 200


def advise_command(
    plan_file: Path | None = typer.Argument(
        None, metavar="[PLAN]", help="The plan. The word schema prints the JSON Schema of the advice.",
        show_default=str(PLAN_PLACE),
    ),
    plan_option: Path | None = typer.Option(None, "--plan", "-p", help="The same, as for other commands."),
    config: Path | None = typer.Option(
        None, "--config", "-c", help="A site's own configuration: look at its own records alone. Nothing is sent."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Folder for advice.html, advice.json and the pictures.", show_default="advice"
    ),
    sizes: str | None = typer.Option(
        None, "--sizes", help="Group sizes to look at, such as 0.1,0.3,0.5.", show_default="0.1 to 0.7"
    ),
    tradeoffs: str | None = typer.Option(
        None, "--tradeoffs", help="Tradeoffs to look at, such as 0.1,0.5.", show_default="a few"
    ),
    rounds: int | None = typer.Option(
        None, "--rounds", min=1, max=10**9, help="Rounds of each training; a linear model is solved without any.",
        show_default="the plan's",
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Look at a sample for some seconds: no curves, only the likely best settings."
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print the advice as JSON. Without --output, no file is written."
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:  # fmt: skip
    """Recommend a measure, a group size, a tradeoff and a rate, by simulation on the plan's data.

    Trains by the plan on a part of the training and validation records, and looks at the rest. Of a plan for
    classes, models are also fitted for a grid of sizes and tradeoffs.

    Test records are never looked at. An interrupted command leaves no file.
    """
    if plan_file == SCHEMA and not SCHEMA.is_file() and plan_option is None:
        from fedfair.studies.advice.document import advice_schema

        console.print_json(json.dumps(advice_schema()))
        return
    if plan_file is not None and plan_option is not None:
        raise typer.BadParameter(f"{plan_file} and {plan_option} are two plans: name one", param_hint="--plan")
    place = plan_file or plan_option or PLAN_PLACE
    plan = check_trains(load_plan(place))
    grid_sizes = _shares(sizes, "--sizes", "above 0 and below 1", zero=False)
    grid_tradeoffs = _shares(tradeoffs, "--tradeoffs", "from 0 to below 1", zero=True)
    if len(grid_sizes or ()) * len(grid_tradeoffs or ()) > MAX_SETTINGS:
        raise PlanError(f"the grid has more than {MAX_SETTINGS} settings", "name fewer sizes or tradeoffs")
    folder = output or (None if as_json else ADVICE_FOLDER)
    if folder is not None:
        _check_folder(folder)
    # Torch takes seconds to load; a plan with a mistake should not have to wait for it.
    from fedfair.studies.advice.search import AdviceGrid

    advice = _advice(plan, place, config, AdviceGrid(grid_sizes, grid_tradeoffs, rounds, quick=quick), quiet=quiet)
    if folder is not None:
        write_advice(advice, folder)
    _show(advice, folder, as_json=as_json)


def _advice(plan: Plan, place: Path, config: Path | None, grid: AdviceGrid, *, quiet: bool) -> AdviceDocument:
    """Return the advice from the plan's data, or from those of one site."""
    from collaborator.site_data import own_site, own_splits
    from fedfair.process.bars import fits_bar
    from fedfair.studies.advice.search import advise, advise_sites

    with fits_bar(quiet=quiet) as fitted:
        if config is None:
            return advise(plan, workspace_of(place), grid, fitted)
        site = own_site(None, config, place)
        return advise_sites(plan, {site.participant: own_splits(site)}, site.code, grid, fitted)


def write_advice(advice: AdviceDocument, folder: Path) -> None:
    """Write the page, the pictures and the document; an interrupt waits until all of them are there."""
    from fedfair.report.advice_page import PICTURES, advice_page, advice_pictures
    from fedfair.report.svg import standalone
    from fedfair.studies.advice.document import to_text

    texts = {f"{name}.svg": standalone(picture) for name, picture in advice_pictures(advice).items()}
    texts |= {PAGE: advice_page(advice), ADVICE: to_text(advice)}
    with interrupts_deferred():
        folder.mkdir(exist_ok=True)
        for name in PICTURES:
            (folder / f"{name}.svg").unlink(missing_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text)


def _show(advice: AdviceDocument, folder: Path | None, *, as_json: bool) -> None:
    from fedfair.report.advice_tables import advice_table, trials_table
    from fedfair.studies.advice.document import to_text

    if as_json:
        console.print_json(to_text(advice))
        return
    if advice.trials is not None:
        console.print(trials_table(advice.trials))
    if advice.fitted != "trials":
        console.print(advice_table(advice))
    for sentence in advice.sentences:
        say(sentence)
    for note in advice.notes:
        tell(note, "dim")
    if folder is not None:
        say(f"The page: {folder / PAGE}")


def _shares(text: str | None, option: str, words: str, *, zero: bool) -> tuple[float, ...] | None:
    """Return the numbers of a list with commas, sorted, each once; None where the option is not given."""
    if text is None:
        return None
    found = set()
    for word in text.split(","):
        try:
            value = TypeAdapter(float).validate_python(word.strip())
        except ValidationError:
            value = -1.0
        if not (0.0 < value < 1.0 or (zero and value == 0.0)):
            raise typer.BadParameter(f"{word.strip()!r} is no number {words}", param_hint=option)
        found.add(value)
    return tuple(sorted(found))


def _check_folder(folder: Path) -> None:
    """Refuse before the work, not after it, a folder that cannot be written or holds somebody else's files."""
    from fedfair.report.html import check_replaceable
    from fedfair.studies.advice.document import FORMAT

    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, --output needs a folder", "name a new or an existing folder")
    if not folder.parent.is_dir():
        raise DataError(f"{folder}: the folder {folder.parent} does not exist", "create it")
    check_replaceable(folder / PAGE)
    earlier = folder / ADVICE
    if earlier.exists() and FORMAT not in earlier.read_text(encoding="utf-8", errors="replace")[:200]:
        raise DataError(f"{earlier} exists and is no advice of fedfair's", "move it away, or name another folder")
