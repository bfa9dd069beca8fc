"""Logins of the page: a link works once, a login ends, and passphrases are not guessed at leisure."""

import pytest

from collaborator.consent_page.sessions import (
    IDLE_SECONDS,
    LINK_SECONDS,
    LONGEST_SECONDS,
    MAX_SESSIONS,
    MAX_WRONG,
    WRONG_SECONDS,
    PageSessions,
)
from fedfair.errors import ApprovalError


class Terminal:
    """The clock of a page, and the links that its terminal shows."""

    def __init__(self) -> None:
        self.now = 0.0
        self.links: list[str] = []
        self.sessions = PageSessions(lambda: self.now, self.links.append)
        self.sessions.new_link()


def test_a_link_works_once_and_the_next_one_is_shown() -> None:
    page = Terminal()
    first = page.links[-1]
    name = page.sessions.log_in(first)
    assert page.sessions.session(name) is not None
    assert len(page.links) == 2
    for used in (first, "", "guessed"):
        with pytest.raises(ApprovalError, match="was used"):
            page.sessions.log_in(used)
    assert page.sessions.is_link(page.links[-1])
    assert len(page.links) == 2
    page.sessions.log_out(name)
    assert page.sessions.session(name) is None


def test_a_link_that_nobody_used_in_time_is_replaced() -> None:
    page = Terminal()
    page.now = LINK_SECONDS
    with pytest.raises(ApprovalError, match="too old"):
        page.sessions.log_in(page.links[0])
    assert page.sessions.is_link(page.links[1])


def test_a_login_ends_without_requests_and_after_a_day_with_them() -> None:
    page = Terminal()
    name = page.sessions.log_in(page.links[-1])
    while page.now < LONGEST_SECONDS:
        assert page.sessions.session(name) is not None
        page.now += IDLE_SECONDS
    page.now += 1.0
    assert page.sessions.session(name) is None
    other = page.sessions
    other.new_link()
    name = other.log_in(page.links[-1])
    page.now += IDLE_SECONDS + 1.0
    assert other.session(name) is None


def test_logins_are_bounded() -> None:
    page = Terminal()
    names = []
    for _ in range(MAX_SESSIONS + 3):
        page.now += 1.0
        names.append(page.sessions.log_in(page.links[-1]))
    alive = [name for name in names if page.sessions.session(name) is not None]
    assert len(alive) <= MAX_SESSIONS
    assert names[-1] in alive
    assert names[0] not in alive


def test_no_passphrase_is_tried_after_too_many_wrong_ones() -> None:
    page = Terminal()
    for _ in range(MAX_WRONG):
        page.sessions.check_tries("amina")
        page.sessions.wrong("amina")
    with pytest.raises(ApprovalError, match="5 passphrases of amina were wrong"):
        page.sessions.check_tries("amina")
    page.sessions.check_tries("jonas")
    page.now += WRONG_SECONDS
    page.sessions.check_tries("amina")
