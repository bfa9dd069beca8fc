"""The addresses of the page, and what each shows; decisions are `deciding`'s business."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from collaborator.consent_page.deciding import Deciding, asked_decision, unopened
from collaborator.consent_page.examinations import Examinations
from collaborator.consent_page.guard import MAX_BODY_BYTES, Guard
from collaborator.consent_page.pages import whole_page
from collaborator.consent_page.sessions import PageSession, PageSessions
from collaborator.study_review.listing import SiteInbox, listed, site_inbox
from collaborator.study_review.parts import TITLES, ReviewPart
from collaborator.study_review.review import StudyReview, review_of
from fedfair.consent.inbox import FINAL, SitePhase, StudyFolder, study_folder
from fedfair.errors import ApprovalError, FedfairError

REFRESH_SECONDS = 2
MAX_FIELDS = 10


@dataclass(frozen=True, slots=True)
class ConsentPage:
    """What the page is about.

    Attributes:
        config_file: the site's `collaborator.yaml`.
        sessions: who is logged in.
        examinations: of the studies.
        deciding: takes decisions.
        names: by which a request may call the page.
        scheme: http or https.
    """

    config_file: Path
    sessions: PageSessions
    examinations: Examinations
    deciding: Deciding
    names: frozenset[str]
    scheme: str

    @property
    def cookie(self) -> str:
        """Name of the cookie; over TLS its prefix has the browser take it from this host alone."""
        return "__Host-fedfair" if self.scheme == "https" else "fedfair-inbox"

    def app(self) -> ASGIApp:
        """Return what answers requests."""
        handlers = _Handlers(self)
        routes = [
            Route("/login/{secret}", handlers.login, methods=["GET", "POST"]),
            Route("/", handlers.inbox),
            Route("/study/{study}", handlers.study),
            Route("/study/{study}/decide", handlers.decide, methods=["POST"]),
            Route("/study/{study}/{part}", handlers.part),
            Route("/logout", handlers.logout, methods=["POST"]),
        ]
        return Guard(Starlette(routes=routes), self.names, self.scheme)


class _Handlers:
    """Answers the requests of one page."""

    def __init__(self, page: ConsentPage) -> None:
        self._page = page
        # One decision at a time: so no more passphrases are tried than are counted.
        self._deciding = Lock()

    async def login(self, request: Request) -> Response:
        """Show a button for a link that works, and log in whoever presses it; looking uses nothing up."""
        secret, sessions = request.path_params["secret"], self._page.sessions
        if request.method != "POST":
            if not sessions.is_link(secret):
                return _fault(ApprovalError("this link was used, or is too old", _LOGIN), 403)
            return HTMLResponse(whole_page("consent_login.html.jinja", "Studies for this site"))
        try:
            name = sessions.log_in(secret)
        except FedfairError as fault:
            return _fault(fault, 403)
        answer = RedirectResponse("/", 303)
        secure = self._page.scheme == "https"
        answer.set_cookie(self._page.cookie, name, path="/", httponly=True, secure=secure, samesite="strict")
        return answer

    async def inbox(self, request: Request) -> Response:
        """Show the studies of the site."""
        return await self._shown(request, self._inbox)

    async def study(self, request: Request) -> Response:
        """Show one study: where it stands, its parts, and the form of a decision."""
        return await self._shown(request, self._study)

    async def part(self, request: Request) -> Response:
        """Show one part of a study, which this login has opened from then on."""
        return await self._shown(request, self._part)

    async def decide(self, request: Request) -> Response:
        """Take a decision."""
        form = await _form(request)
        return await self._shown(request, lambda asked, session: self._decide(asked, session, form), form)

    async def logout(self, request: Request) -> Response:
        """End a login."""
        form = await _form(request)
        return await self._shown(request, self._logout, form)

    async def _shown(
        self,
        request: Request,
        show: Callable[[Request, PageSession], Response],
        form: dict[str, str] | None = None,
    ) -> Response:
        """Answer somebody who is logged in; a form must hold the token of the login."""
        session = self._page.sessions.session(request.cookies.get(self._page.cookie, ""))
        if session is None:
            return _fault(ApprovalError("nobody is logged in here", _LOGIN), 403)
        if form is not None and not hmac.compare_digest(
            form.get("token", "").encode(), session.form_token.encode()
        ):
            return _fault(ApprovalError("this form is not of this login", "open the page again"), 403)
        try:
            return await run_in_threadpool(show, request, session)
        except FedfairError as fault:
            return _fault(fault, 409, session)

    def _inbox(self, _: Request, session: PageSession) -> Response:
        site = site_inbox(self._page.config_file)
        studies = [listed(site, folder) for folder in site.studies()]
        made = whole_page(
            "consent_inbox.html.jinja",
            f"Studies for {site.site}",
            form_token=session.form_token,
            site=site,
            studies=studies,
            asks={SitePhase.PROPOSED},
        )
        return HTMLResponse(made)

    def _study(self, request: Request, session: PageSession) -> Response:
        site, folder = self._asked(request)
        review, refresh = self._review(site, folder), 0
        one = listed(site, folder)
        if review is None and one.status.phase is not SitePhase.ARRIVING:
            refresh = REFRESH_SECONDS
        made = whole_page(
            "consent_study.html.jinja",
            folder.name,
            refresh=refresh,
            form_token=session.form_token,
            study=one,
            site=site,
            review=review,
            titles=TITLES,
            opened={part for name, part in session.opened if name == folder.name},
            left=() if review is None else unopened(review, session),
            is_over=one.status.phase in FINAL,
            agreed=bool(one.decisions) or folder.approval.exists(),
            is_approved=folder.approval.exists(),
            person=session.person,
        )
        return HTMLResponse(made)

    def _part(self, request: Request, session: PageSession) -> Response:
        site, folder = self._asked(request)
        if request.path_params["part"] not in set(ReviewPart):
            return _fault(ApprovalError("a study has no such part"), 404, session)
        part, review = ReviewPart(request.path_params["part"]), self._review(site, folder)
        if review is None:
            made = whole_page(
                "consent_waiting.html.jinja", folder.name, refresh=REFRESH_SECONDS, form_token=session.form_token
            )
            return HTMLResponse(made)
        shown, order = review.parts[part], list(review.parts)
        following = order[order.index(part) + 1 :][:1]
        session.opened[folder.name, part.value] = shown.fingerprint
        made = whole_page(
            "consent_part.html.jinja",
            shown.title,
            form_token=session.form_token,
            review=review,
            shown=shown,
            following=following,
            titles=TITLES,
        )
        return HTMLResponse(made)

    def _decide(self, request: Request, session: PageSession, form: dict[str, str]) -> Response:
        site, folder = self._asked(request)
        found = self._page.examinations.of(folder)
        with self._deciding:
            self._page.deciding.take(site, folder, session, found, asked_decision(form))
        return RedirectResponse(f"/study/{folder.name}", 303)

    def _logout(self, request: Request, _: PageSession) -> Response:
        self._page.sessions.log_out(request.cookies[self._page.cookie])
        answer = _fault(ApprovalError("you have logged out", _LOGIN), 200)
        answer.delete_cookie(self._page.cookie, path="/", secure=self._page.scheme == "https", httponly=True)
        return answer

    def _asked(self, request: Request) -> tuple[SiteInbox, StudyFolder]:
        site = site_inbox(self._page.config_file)
        return site, study_folder(site.home, request.path_params["study"])

    def _review(self, site: SiteInbox, folder: StudyFolder) -> StudyReview | None:
        """Return a study as it is read; None while it arrives or is looked at."""
        if not folder.plan.is_file():
            return None
        found = self._page.examinations.of(folder)
        return None if found is None else review_of(site.config_file, folder, found)


_LOGIN = "the terminal in which the page was started shows a link that works once"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; one that is sent twice, or is no form, has none."""
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            return {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        return {}
    return dict(pairs) if len({name for name, _ in pairs}) == len(pairs) else {}


def _fault(fault: FedfairError, status: int, session: PageSession | None = None) -> HTMLResponse:
    token = "" if session is None else session.form_token
    made = whole_page(
        "consent_fault.html.jinja", "Not done" if status != 200 else "Done", fault=fault, form_token=token
    )
    return HTMLResponse(made, status)
