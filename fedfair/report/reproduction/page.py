"""A repetition of the paper's experiments as a page of one file and as a summary in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fedfair.report.html import PageSection, page, render
from fedfair.report.reproduction.charts import charts
from fedfair.report.reproduction.tables import (
    Rows,
    chosen_settings,
    claims,
    composition,
    known_groups,
    worst_groups,
)
from fedfair.studies.reproduction.comparison import Verdict
from fedfair.studies.reproduction.conclusions import Conclusions
from fedfair.studies.reproduction.execution import Done
from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.study import Figure
from fedfair.templates import filled

HEADINGS = {
    Figure.BASELINES: "All methods against the group size (Figure 2)",
    Figure.TRADEOFFS: "The fan over the tradeoff (Figure 3)",
    Figure.LOCAL_STEPS: "One, five and ten local steps (Figure 4)",
}

LEFT_OUT = "Left out, because no run finished everywhere:"
NOTHING_FAILS = "Nothing that these repetitions could tell."


def reproduction_page(title: str, studies: Sequence[tuple[Done, Conclusions]]) -> str:
    """Return the whole page.

    Args:
        title: its title.
        studies: what was run, each with what it shows.
    """
    sections = [
        PageSection(
            done.study.name,
            done.study.title,
            render(
                "reproduction.html.jinja",
                pictures=[(HEADINGS[figure], picture) for figure, picture in charts(done)],
                **_values(done, shown),
            ),
        )
        for done, shown in studies
    ]
    return page(title, sections)


def reproduction_summary(title: str, command: str, studies: Sequence[tuple[Done, Conclusions]]) -> str:
    """Return the tables and the sentences as Markdown; arguments as for the page, and the command that made it."""
    values = {"title": title, "command": command, "studies": [_values(*each) for each in studies]}
    return filled("fedfair.report", "reproduction.md.jinja", **values)


def _values(done: Done, shown: Conclusions) -> dict[str, object]:
    """Return what page and summary say of one study."""
    return {
        "title": done.study.title,
        "summary": _summary(done),
        "worst": worst_groups(done),
        "more": _more(done, shown),
        "failing": [f"{one.claim}: {one.reason}" for one in shown.decisions if one.verdict is Verdict.FAILS],
        "stated": done.study.stated,
        "chosen": done.study.chosen,
        "nothing_fails": NOTHING_FAILS,
        "unfinished": _unfinished(done),
        "left_out": LEFT_OUT,
        "missing": _missing(done),
    }


def _more(done: Done, shown: Conclusions) -> list[Rows]:
    known = known_groups(done)
    tables = [] if known is None else [known]
    tables += [composition(shown.shares, paper=done.study.paper_tables)] if shown.shares else []
    return [claims(shown.decisions), *tables, chosen_settings(done)]


def _unfinished(done: Done) -> str:
    if not done.unfinished:
        return ""
    every = len(done.runs.points)
    return f"{done.unfinished} of {every} runs are not finished. The same command without --hours runs them."


def _missing(done: Done) -> list[str]:
    """Return the marks without a result, those of one method in one figure together."""
    places: dict[str, list[str]] = {}
    for cell in done.evidence.missing:
        sizes = places.setdefault(f"{cell.figure.value}, {cell.method}", [])
        sizes += [f"{cell.group_size:.0%}"] if f"{cell.group_size:.0%}" not in sizes else []
    return [f"{place}: {', '.join(sizes)}" for place, sizes in places.items()]


def _summary(done: Done) -> str:
    size = done.size
    answered = "all records" if size.answered == "full" else f"{size.answered} records"
    return (
        f"{len(done.results)} runs; {size.rounds} rounds of one step (FedAvg: {size.epoch_rounds} rounds of "
        f"{size.local_epochs} epochs), {size.repeats} {done.study.repeats.value}; DRO and BPF answer {answered} "
        f"in every step. Learning rates tried: {_rates(done)}."
    )


def _rates(done: Done) -> str:
    """Return which learning rates were tried for which methods, those with equal ones together."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for name in done.study.methods:
        tried = tuple(rate for rate in METHODS[name].rates(done.size) if rate is not None)
        groups.setdefault(tried, []).append(METHODS[name].label)
    return "; ".join(
        f"{', '.join(labels)} {', '.join(f'{rate:g}' for rate in rates)}"
        for rates, labels in groups.items()
        if rates
    )
