"""A passport as one HTML page: what it is about, each statement with its files, requirements, how to check it."""

from __future__ import annotations

from fedfair.passport.document import MadeStatement, Passport
from fedfair.report.html import PageSection, page, render

_STATES = {"shown": "shown by evidence", "declared": "declared by people, shown by nothing", "absent": "not there"}
_LONG = 12
"""A statement of more sentences than this is folded behind its first ones."""


def passport_page(passport: Passport) -> str:
    """Return the page of a passport whose statements the caller has computed or checked."""
    titles = {one.id: one.title for one in passport.statements}

    def part(name: str, statement: MadeStatement | None = None) -> PageSection:
        body = render(
            "passport.html.jinja",
            "fedfair.passport",
            part=name,
            passport=passport,
            statement=statement,
            states=_STATES,
            titles=titles,
            most=_LONG,
            kept={one.id for one in passport.files if one.confidential},
        )
        if statement is not None:
            return PageSection(statement.id[1:], statement.title, body)
        return PageSection(
            name, {"requirements": "Who asks for what", "check": "How to check it"}.get(name, ""), body
        )

    sections = (
        part("about"),
        *(part("statement", one) for one in passport.statements),
        part("requirements"),
        part("check"),
    )
    return page(f"Passport of a model of {passport.about.name}", sections)
