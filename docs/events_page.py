"""The page of every event of the JSON log, written from the classes of news of both actors."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator, Mapping

from fedfair.news import run, site, standing, sums, tracker
from fedfair.news.event import News, event_name

INTRODUCTION = """# Events of the JSON log

Written by `make docs` from the code. With `--log-format json` both actors and `fedfair simulate` write one JSON
object on each line of standard error. [Logs and trackers](../how-to/logs.md) says how to use it.

Every line has these keys:

| key | value |
|---|---|
| `time` | when it was written: ISO 8601, UTC, milliseconds |
| `level` | `debug`, `info`, `warning` or `error` |
| `event` | a name of this page; names stay |
| `run_id` | 32 hexadecimal digits; empty until the run is known |
| `message` | the sentence that the text has |

Further keys depend on the event. A time is ISO 8601 in UTC, a number that is not finite is null, several values
are a list.
"""

OTHERS: Mapping[str, tuple[str, str, str]] = {
    "sum_applied": (
        "debug",
        "A sum was opened and applied.",
        "`purpose`, `round`, `rounds_total`, `contributors`, `replaced_values`",
    ),
    "round_evaluated": (
        "info",
        "A model was evaluated.",
        "`round`, `rounds_total`, `threshold`, `worst_group_size`, `splits` (`mean`, `worst`, `accuracy` by name)",
    ),
    "run_ended": ("info", "The run is finished.", "`state`, `rounds_done`"),
    "result_doubted": ("warning", "What to bear in mind about the result.", ""),
    "worker_lost": ("warning", "A worker of a simulation on Ray was lost and is replaced.", ""),
    "start_warned": ("warning", "What to bear in mind before a site takes part.", ""),
    "library_warned": ("warning", "A library has warned.", "`category`, `place`"),
    "command_failed": ("error", "A fault ends the process.", "`fault`, `remedy`, `status` (of the exit)"),
    "command_stopped": ("info", "The operator ends the process.", "`fault`, `remedy`, `status` (of the exit)"),
}
"""The events that are no notices: level, meaning, keys."""


def page() -> str:
    """Return the whole page in Markdown."""
    parts = [
        INTRODUCTION,
        _section("Of the aggregator", AT_AGGREGATOR),
        _section("Of a site", AT_SITE),
        _section("Of a site that stands", STANDING),
        _others(),
    ]
    return "\n".join(parts)


def kinds(*modules: types.ModuleType) -> tuple[type[News], ...]:
    """Return the notices of some modules, in the order in which they are written."""
    return tuple(
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, News)
        and kind.__module__ == module.__name__
        and kind.is_notice
    )


AT_AGGREGATOR, AT_SITE, STANDING = kinds(run, sums, tracker), kinds(site, tracker), kinds(standing)


def _section(title: str, kinds_told: tuple[type[News], ...]) -> str:
    rows = [f"## {title}\n", "| event | level | tells | keys |", "|---|---|---|---|"]
    for kind in kinds_told:
        meaning = (inspect.getdoc(kind) or "").splitlines()[0]
        keys = "; ".join(_keys(kind))
        rows.append(f"| `{event_name(kind)}` | {kind.level.value} | {meaning} | {keys} |")
    return "\n".join([*rows, ""])


def _keys(kind: type) -> Iterator[str]:
    """Yield each field with what its class says of it."""
    said = dict(
        re.findall(r"^ {4}(\w+): (.*?)(?=^ {4}\w|\Z)", inspect.getdoc(kind) or "", re.MULTILINE | re.DOTALL)
    )
    for field in dataclasses.fields(kind):
        yield f"`{field.name}`: {' '.join(said[field.name].split()).rstrip('.')}"


def _others() -> str:
    rows = ["## Of every command\n", "| event | level | tells | keys |", "|---|---|---|---|"]
    rows += [f"| `{name}` | {level} | {tells} | {keys} |" for name, (level, tells, keys) in OTHERS.items()]
    return "\n".join([*rows, ""])
