from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from fedfair.identity.authority import BACKDATE
from fedfair.identity.expiry import ENDED, ExpiryWatch, days_until, warning_stage
from tests.identity.identity_makers import NOW, authority, certificate_of

END = NOW + timedelta(days=365)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("before", "stage"),
    [
        (31 * DAY, None), (30 * DAY + SECOND, None), (30 * DAY, 30), (7 * DAY + SECOND, 30), (7 * DAY, 7),
        (DAY + SECOND, 7), (DAY, 1), (timedelta(0), 1), (-SECOND, ENDED), (-400 * DAY, ENDED),
    ],
)  # fmt: skip
def test_a_warning_is_due_30_7_and_1_days_ahead_and_after_the_end(before: timedelta, stage: int | None) -> None:
    assert warning_stage(END, END - before) == stage


def test_the_days_that_a_certificate_has_left_are_whole_days() -> None:
    certificate = certificate_of("clinic-a", authority(), days=365)
    assert days_until(certificate.not_valid_after_utc, NOW) == 365
    assert days_until(certificate.not_valid_after_utc, NOW + SECOND) == 364
    assert days_until(certificate.not_valid_after_utc, NOW + 365 * DAY) == 0
    assert days_until(certificate.not_valid_after_utc, NOW + 365 * DAY + SECOND) == -1
    assert days_until(certificate.not_valid_after_utc, NOW - BACKDATE) == 365


def test_a_year_of_hourly_looks_gives_each_warning_once_and_again_for_the_renewed_certificate() -> None:
    watch, said = ExpiryWatch(), []
    ends = {"this host's certificate": END}
    now: datetime = NOW
    while now < END + 2 * DAY:
        said += [(ending.what, ending.days_left) for ending in watch.due(ends, now)]
        now += timedelta(hours=1)
    what = "this host's certificate"
    assert said == [(what, 30), (what, 7), (what, 1), (what, -1)]
    ends[what] = now + 365 * DAY
    assert not tuple(watch.due(ends, now))
    (ending,) = watch.due(ends, now + 340 * DAY)
    assert (ending.days_left, ending.until) == (25, ends[what])
    assert "in 25 days -> `fedfair certs renew`" in ending.words
