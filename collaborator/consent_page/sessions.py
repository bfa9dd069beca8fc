"""Who is logged in, what this login has opened, and how often a passphrase was wrong; a pure table with a clock.

A login begins with a link that is printed in the terminal and works once. It lasts for `IDLE_SECONDS` without a
request, and `LONGEST_SECONDS` in all. What was opened counts for the login in which it was opened. The first
person who decides in a login owns it from then on: what one has read, another has not.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from fedfair.errors import ApprovalError

LINK_SECONDS = 900.0
IDLE_SECONDS = 1800.0
LONGEST_SECONDS = 8 * 3600.0
MAX_SESSIONS = 32
MAX_WRONG = 5
WRONG_SECONDS = 900.0
"""So many wrong passphrases of one person in so long a time; then none is tried until it is over."""


@dataclass(slots=True)
class PageSession:
    """One login.

    Attributes:
        form_token: every form that is sent must hold it.
        begun: when, by the clock.
        seen: when the last request came.
        opened: the fingerprint of each part that was shown, by study and part.
        person: who has decided in this login; empty until somebody has.
    """

    form_token: str = field(repr=False)
    begun: float
    seen: float
    opened: dict[tuple[str, str], str] = field(default_factory=dict)
    person: str = ""


class PageSessions:
    """All logins of one page.

    Args:
        clock: seconds that never go back.
        announce: told the secret of each new link.
    """

    def __init__(self, clock: Callable[[], float], announce: Callable[[str], None]) -> None:
        self._clock = clock
        self._announce = announce
        self._link, self._link_until = "", 0.0
        self._sessions: dict[str, PageSession] = {}
        self._wrong: dict[str, list[float]] = {}

    def new_link(self) -> None:
        """Make a link in place of the one that was not used, and announce it."""
        self._link, self._link_until = secrets.token_urlsafe(32), self._clock() + LINK_SECONDS
        self._announce(self._link)

    def is_link(self, secret: str) -> bool:
        """Return whether a link would log somebody in now."""
        known = hmac.compare_digest(secret.encode(), self._link.encode())
        return bool(self._link) and known and self._clock() < self._link_until

    def log_in(self, secret: str) -> str:
        """Return the secret of a new login; the link is used up, and another one is announced.

        Raises:
            ApprovalError: the link was used before, is too old, or never was one.
        """
        if not self.is_link(secret):
            if self._clock() >= self._link_until:
                self.new_link()
            raise ApprovalError(
                "this link was used, or is too old", "the terminal in which the page was started shows another one"
            )
        self._forget()
        now, name = self._clock(), secrets.token_urlsafe(32)
        self._sessions[name] = PageSession(secrets.token_urlsafe(32), now, now)
        self.new_link()
        return name

    def session(self, name: str) -> PageSession | None:
        """Return a login that lasts still, and note that it was used."""
        self._forget()
        found = self._sessions.get(name)
        if found is not None:
            found.seen = self._clock()
        return found

    def log_out(self, name: str) -> None:
        """End a login."""
        self._sessions.pop(name, None)

    def check_tries(self, person: str) -> None:
        """Refuse to try another passphrase of somebody whose passphrase was wrong too often.

        Raises:
            ApprovalError: it was.
        """
        now = self._clock()
        recent = [at for at in self._wrong.get(person, []) if now - at < WRONG_SECONDS]
        self._wrong[person] = recent
        if len(recent) >= MAX_WRONG:
            wait = WRONG_SECONDS - (now - recent[0])
            raise ApprovalError(
                f"{MAX_WRONG} passphrases of {person} were wrong; none is tried for {wait / 60:.0f} minutes more",
                "use `fedfair inbox` in a terminal, where the key's file is",
            )

    def wrong(self, person: str) -> None:
        """Count a wrong passphrase."""
        self._wrong.setdefault(person, []).append(self._clock())

    def _forget(self) -> None:
        now = self._clock()
        for name, one in list(self._sessions.items()):
            if now - one.seen > IDLE_SECONDS or now - one.begun > LONGEST_SECONDS:
                del self._sessions[name]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda name: self._sessions[name].seen)]
