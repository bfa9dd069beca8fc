"""The page in a headless Chromium: it fits, it updates itself, and it says when nobody answers any more."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fedfair.watching.http_server import ServedPage
from fedfair.watching.pages import status_pages
from fedfair.watching.run_status import (
    PooledEvaluation,
    PooledFigures,
    RunStatus,
    SumStep,
    attended,
    evaluated,
    noted,
    round_ended,
    stepped,
)
from tests.browser import PHONE_WIDTH, Browser
from tests.watching.served_status import served

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror='document.title=1'>"
LONG = "a-name-that-goes-on-" * 12


def crowd(count: int) -> RunStatus:
    """Return the status of a run with many sites, the last of which is away, and names that do their worst."""
    sites = (LONG, HOSTILE, *(f"clinic-{number}" for number in range(count)))
    status = RunStatus("aggregator", "aggregator", HOSTILE, 3000, 0.1, sites, NOON, withdrawn={HOSTILE: HOSTILE})
    status = stepped(status, SumStep("training", 7, 2, "uploads", NOON + timedelta(minutes=1)), NOON)
    status = attended(status, sites[2:-1], (LONG, sites[-1]), NOON)
    for number in range(40):
        figures = {name: PooledFigures(1 / (number + 1), 2 / (number + 2), 0.5) for name in ("train", "test")}
        status = evaluated(status, PooledEvaluation(number, figures))
        status = round_ended(status, number, NOON + timedelta(seconds=number))
    return noted(noted(status, HOSTILE, NOON), LONG, NOON)


def until(condition: str) -> str:
    """Return JavaScript that waits for a condition."""
    return f"""new Promise(done => {{
        const look = () => {condition} ? done(true) : setTimeout(look, 50);
        look();
    }})"""


def pages_of(status: Callable[[], RunStatus]) -> dict[str, ServedPage]:
    return dict(status_pages(status, lambda: NOON + timedelta(minutes=2)))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE_WIDTH, 1280])
def test_the_page_fits_and_runs_nothing_of_what_others_have_named(
    browser: Browser, width: int, dark: bool
) -> None:
    status = crowd(200)
    with served(pages_of(lambda: status)) as address:
        colour = "getComputedStyle(document.body).backgroundColor"
        rows = "[...document.querySelectorAll('.people li')].map(row => row.innerText)"
        questions = ("document.title", rows, colour, "document.querySelectorAll('script, img').length")
        seen = browser.look(address, *questions, width=width, dark=dark)
    title, people, background, elements = seen.answers
    assert seen.complaints == []
    assert seen.requests == [address]
    assert seen.widest == width
    assert title == f"39/3000 {HOSTILE}"
    assert elements == 1
    assert background == ("rgb(18, 23, 29)" if dark else "rgb(255, 255, 255)")
    # Who is missing comes before those who are there, however many those are.
    assert [LONG in people[0], "withdrew" in people[1], "clinic-199" in people[2]] == [True, True, True]
    assert len(people) == 60


def test_the_page_updates_itself(browser: Browser) -> None:
    moments = iter(range(10**6))
    status = crowd(2)

    def next_status() -> RunStatus:
        return replace(status, rounds_done=100 + next(moments))

    with served(pages_of(next_status)) as address:
        later = "parseInt(document.querySelector('#where').innerText.split(' ')[1]) >= 102"
        seen = browser.look(address, until(later), "document.title.split('/')[0]")
        requests = seen.requests
    assert seen.complaints == []
    assert int(seen.answers[1]) >= 102
    assert set(requests) == {address, f"{address}now"}


def test_the_page_says_when_nobody_answers_and_keeps_what_it_showed(browser: Browser) -> None:
    pages = pages_of(lambda: crowd(2))
    del pages["/now"]
    with served(pages) as address:
        shown = until("!document.querySelector('#unreached').hidden")
        text = "document.querySelector('#unreached').innerText"
        seen = browser.look(address, shown, text, "document.querySelector('#where').innerText")
    assert seen.answers[1].startswith("No answer for ")
    assert seen.answers[2].startswith("Round 39 of 3000 is done")
