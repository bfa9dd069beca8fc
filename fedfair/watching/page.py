"""The page of a status: it updates itself, loads nothing from elsewhere, and fits a phone.

Everything on it is made here, of the status alone; its script does nothing but put the next one in its place. The
policy of the page names that script and that style by their digests, so that nothing else can run, whatever a name
or a note says. How it looks is `report.html`'s style.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial

from markupsafe import Markup

from fedfair.plan.description import percent
from fedfair.process.printable import printable
from fedfair.report.blocks import table
from fedfair.report.html import render
from fedfair.report.svg import palette_css
from fedfair.results.loss_text import loss_or_too_few, loss_text
from fedfair.version import __version__
from fedfair.watching.run_status import NO_SUM, RunStatus, WatchedState

CONTENT_TYPE = "text/html; charset=utf-8"

MAX_PEOPLE = 60
"""Sites in the list; those that are missing or awaited come first."""

HELD_UP_SECONDS = 30.0
"""Whoever is awaited for longer than that is shown to hold the run up."""

SLOW_FACTOR, SLOW_MIN_SECONDS = 2.0, 0.5
"""Whoever takes so many medians is shown to be slow; a median counts as so many seconds at least."""

WIDTH, HEIGHT, LEFT, FOOT = 340, 130, 38, 16
"""Of the picture, in its own units."""


@dataclass(frozen=True, slots=True)
class PersonRow:
    """One site in the list: its name, a class of the style, and words."""

    name: str
    kind: str
    words: str


@cache
def _static() -> tuple[Markup, Markup]:
    style = palette_css() + render("style.css") + render("status.css")
    return Markup(style), render("status.js")  # noqa: S704 - our own files


@cache
def content_policy() -> str:
    """Return the Content-Security-Policy of the page."""
    style, script = (_digest(part) for part in _static())
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def status_page(status: RunStatus, now: datetime) -> bytes:
    """Return the whole page.

    Args:
        status: the status.
        now: the time, with a time zone.
    """
    style, script = _static()
    body = _now(status, now)
    made = render("status.html.jinja", title=_title(status), body=body, style=style, script=script)
    return printable(made, keep="\n").encode("utf-8")


def status_part(status: RunStatus, now: datetime) -> bytes:
    """Return what changes on the page, for its script."""
    return printable(_now(status, now), keep="\n").encode("utf-8")


def _title(status: RunStatus) -> str:
    at = f"{status.rounds_done}/{status.rounds_total} " if status.rounds_total else ""
    return f"{at}{status.federation}" + (f": {status.name}" if status.role == "collaborator" else "")


def _now(status: RunStatus, now: datetime) -> Markup:
    people, hidden = _people(status, now)
    return render(
        "status_now.html.jinja",
        status=status,
        title=_title(status),
        where=_where(status),
        pace=_pace(status, now),
        waiting=_waiting(status),
        is_held_up=_is_held_up(status, now),
        people=people,
        hidden=hidden,
        losses=_losses(status),
        chart=_chart(status),
        worst=f"worst {percent(status.worst_group_size)}",
        loss=partial(loss_text, usual=4),
        counts=list(_counts(status)),
        clock=partial(_clock, now=now),
        version=__version__,
        now=now.astimezone(UTC),
        certificate_days=status.certificate_days(now),
    )


def _where(status: RunStatus) -> str:
    if status.state is WatchedState.OVER:
        return f"The run is over, after round {status.rounds_done}."
    rounds = ""
    if status.rounds_total:
        done = f"Round {status.rounds_done}" if status.rounds_done else "No round"
        rounds = f"{done} of {status.rounds_total} is done"
    if status.state is WatchedState.STOPPING:
        return f"{rounds}. The run is being stopped." if rounds else "The run is being stopped."
    if status.step.phase == NO_SUM:
        doing = "no sum is open"
    elif status.role == "collaborator":
        doing = f"this site answers the {status.step.purpose} sum of round {status.step.round}"
    else:
        again = f", attempt {status.step.attempt}" if status.step.attempt > 1 else ""
        doing = f"{status.step.purpose} sum of round {status.step.round}{again} waits for {status.step.phase}"
    return f"{rounds}; {doing}." if rounds else f"{doing[0].upper()}{doing[1:]}."


def _pace(status: RunStatus, now: datetime) -> str:
    rate, age = status.rounds_per_second, status.last_round_age(now)
    if age is None:
        return f"No round has ended since this process began, {_ago(_seconds(status.started, now))} ago."
    pace = ""
    if rate is not None:
        pace = f"{rate:.1f} rounds a second" if rate >= 1 else f"a round every {_ago(1 / rate)}"
    return f"{pace}; the last one ended {_ago(age)} ago." if pace else f"The last round ended {_ago(age)} ago."


def _waiting(status: RunStatus) -> str:
    if status.state is WatchedState.OVER or not (status.awaited or status.waiting_words):
        return ""
    if status.step.phase == NO_SUM and status.waiting_words:
        return status.waiting_words
    names = list(status.awaited)
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    until = "" if status.until is None else f", until {status.until.astimezone(UTC):%H:%M:%S} UTC at the latest"
    return f"Waiting for {shown}{until}."


def _is_held_up(status: RunStatus, now: datetime) -> bool:
    """Return whether somebody who was here is away, or is awaited for long."""
    away = status.step.phase != NO_SUM and not status.awaited.keys() <= set(status.connected)
    return away or any(_seconds(since, now) > HELD_UP_SECONDS for since in status.awaited.values())


def _people(status: RunStatus, now: datetime) -> tuple[list[PersonRow], int]:
    present, names = frozenset(status.connected), list(status.sites)
    if len(names) > MAX_PEOPLE:
        # Whoever is there, not awaited and not left behind comes last; otherwise the order of the plan stays.
        names.sort(key=lambda name: name in present and name not in status.awaited and name not in status.behind)
    rows = [_person(status, name, now, here=name in present) for name in names[:MAX_PEOPLE]]
    return rows, len(names) - len(rows)


def _person(status: RunStatus, name: str, now: datetime, *, here: bool) -> PersonRow:
    if name in status.withdrawn and not here:
        return PersonRow(name, "withdrew", f"withdrew: {status.withdrawn[name]}")
    words = "connected" if here else "not connected"
    if name in status.awaited:
        words += f", awaited for {_ago(_seconds(status.awaited[name], now))}"
    if name in status.behind:
        words += f", left behind for {_ago(_seconds(status.behind[name], now))}"
    words += _slowness(status, name)
    return PersonRow(name, "here" if here else "away", words)


def _slowness(status: RunStatus, name: str) -> str:
    """Return how long a site took, where that is much or sums continued without it."""
    seconds, median = status.answer_seconds.get(name), status.median_answer_seconds
    if seconds is None or median is None:
        return ""
    if name not in status.behind and seconds < SLOW_FACTOR * max(median, SLOW_MIN_SECONDS):
        return ""
    return f", answers in {_ago(seconds)} where the median is {_ago(median)}"


def _losses(status: RunStatus) -> Markup | str:
    if status.evaluation is None:
        return ""
    headings = ("records", "everybody", f"worst {percent(status.worst_group_size)}", "accuracy")
    rows = [
        (
            name,
            loss_or_too_few(split.mean),
            loss_or_too_few(split.worst),
            "—" if split.accuracy is None else f"{split.accuracy:.1%}",
        )
        for name, split in status.evaluation.splits.items()
    ]
    return table(f"Losses in {status.loss_unit} over all sites together, smaller is better", headings, rows)


def _chart(status: RunStatus) -> dict[str, object] | None:
    """Return the places and figures of the picture of losses by round; None before the second evaluation."""
    if len(status.history) < 2:
        return None
    rounds = [point[0] for point in status.history]
    values = [value for point in status.history for value in point[1:]]
    low, high = min(values), max(values)
    first, last = rounds[0], max(rounds[-1], rounds[0] + 1)
    height, width = HEIGHT - FOOT - 8, WIDTH - LEFT - 4

    def line(place: int) -> str:
        return " ".join(
            f"{LEFT + width * (point[0] - first) / (last - first):.1f},"
            f"{6 + height * (high - point[place]) / ((high - low) or 1.0):.1f}"
            for point in status.history
        )

    sizes = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "floor": HEIGHT - FOOT, "foot": HEIGHT - 3}
    figures = {"last": last, "high": f"{high:.3g}", "low": f"{low:.3g}"}
    return {**sizes, **figures, "mean": line(1), "worst": line(2)}


def _counts(status: RunStatus) -> Iterator[tuple[str, str]]:
    def all_of(counter: str) -> float:
        return sum(status.totals.get(counter, {}).values())

    yield "sums" if status.role == "aggregator" else "sums answered", f"{all_of('sums'):.0f}"
    if status.role == "aggregator":
        yield "lost sums", f"{all_of('lost_sums'):.0f}"
        yield "unawaited answers", f"{all_of('unawaited_answers'):.0f}"
        yield "left behind", f"{all_of('left_behind_answers'):.0f}"
    yield "refusals", f"{all_of('refusals'):.0f}"
    yield "received", _bytes(all_of("received_bytes"))
    yield "sent", _bytes(all_of("sent_bytes"))


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _ago(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, most, size in (("s", 120, 1), ("min", 120 * 60, 60), ("h", 48 * 3600, 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def _clock(at: datetime, now: datetime) -> str:
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def _seconds(earlier: datetime, later: datetime) -> float:
    return max(0.0, (later - earlier).total_seconds())
