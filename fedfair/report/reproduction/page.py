"""A repetition of the paper's experiments as a page of one file and as a summary in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fedfair.experiments.reproduction.claims import Verdict, findings
from fedfair.experiments.reproduction.composition import Shares
from fedfair.experiments.reproduction.execution import Done
from fedfair.experiments.reproduction.study import Figure
from fedfair.report.html import PageSection, page, render
from fedfair.report.reproduction.charts import charts
from fedfair.report.reproduction.tables import (
    Rows,
    chosen_settings,
    composition,
    known_groups,
    verdicts,
    worst_groups,
)

HEADINGS = {
    Figure.BASELINES: "All methods against the group size (Figure 2)",
    Figure.TRADEOFFS: "The fan over the tradeoff (Figure 3)",
    Figure.LOCAL_STEPS: "One, five and ten local steps (Figure 4)",
}

NOTHING_FAILS = "Nothing that these repetitions could tell."


def reproduction_page(title: str, studies: Sequence[tuple[Done, Mapping[str, Shares]]]) -> str:
    """Return the whole page.

    Args:
        title: its title.
        studies: what was run, each with the composition of its worst groups (empty for none).
    """
    sections = [PageSection(done.study.name, done.study.title, _body(done, shares)) for done, shares in studies]
    return page(title, sections)


def reproduction_summary(title: str, command: str, studies: Sequence[tuple[Done, Mapping[str, Shares]]]) -> str:
    """Return the tables and the sentences as Markdown; arguments as for the page, and the command that made it."""
    parts = [f"# {title}", f"Made by `{command}`; the charts are in the page beside this file."]
    for done, shares in studies:
        parts += [f"## {done.study.title}", _summary(done), _markdown(worst_groups(done))]
        parts += [_markdown(rows) for rows in _more(done, shares)]
        failing = _failing(done)
        parts.append("What does not hold here:\n" + _bullets(failing or [NOTHING_FAILS]))
        if done.evidence.missing:
            parts.append(f"Left out, because no run finished everywhere: {_missing(done)}.")
        parts += ["As the paper states it:\n" + _bullets(done.study.stated)]
        parts += ["Chosen here, or different:\n" + _bullets(done.study.chosen)]
    return "\n\n".join(parts) + "\n"


def _body(done: Done, shares: Mapping[str, Shares]) -> Markup:
    return render(
        "reproduction.html.jinja",
        summary=_summary(done),
        worst=worst_groups(done),
        pictures=[(HEADINGS[figure], picture) for figure, picture in charts(done)],
        more=_more(done, shares),
        failing=_failing(done),
        stated=done.study.stated,
        chosen=done.study.chosen,
        nothing_fails=NOTHING_FAILS,
        missing=_missing(done),
    )


def _more(done: Done, shares: Mapping[str, Shares]) -> list[Rows]:
    known = known_groups(done)
    tables = [] if known is None else [known]
    tables += [composition(shares)] if shares else []
    return [*tables, verdicts(findings(done.evidence)), chosen_settings(done)]


def _missing(done: Done) -> str:
    cells = (f"{cell.method} at {cell.group_size:.0%} ({cell.figure.value})" for cell in done.evidence.missing)
    return ", ".join(dict.fromkeys(cells))


def _failing(done: Done) -> list[str]:
    return [
        f"{finding.claim}: {finding.sentence}"
        for finding in findings(done.evidence)
        if finding.verdict is Verdict.FAILS
    ]


def _summary(done: Done) -> str:
    size = done.size
    return (
        f"{len(done.results)} runs; {size.rounds} rounds of one step (FedAvg: {size.epoch_rounds} rounds of "
        f"{size.local_epochs} epochs), {size.repeats} {done.study.repeats.value}; learning rates tried: "
        f"{', '.join(f'{rate:g}' for rate in size.learning_rates)}."
    )


def _markdown(rows: Rows) -> str:
    lines = [rows.head, ("---",) * len(rows.head), *rows.body]
    return rows.caption + "\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
