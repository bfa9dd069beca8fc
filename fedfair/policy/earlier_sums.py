"""Remembers over which sites a model, a column or a survey was opened, under whatever plan.

Two sums about one thing over two sets of sites can be subtracted, and show what the sets do not share: of the
same study with one more hospital, that hospital's own figures. A plan knows nothing of the plans before it, so
each site keeps a history that is its own and no plan's. What it has helped to open under another plan, it helps to
open again only for the very same sites; `policy.earlier_cohort: any` allows more. Under one plan other rules hold
(`request_limits`), and where a plan adds noise, the noise covers the difference.

Statistics of a column are asked in many ways, and two ways over the same sites can be subtracted too: with other
rows, bins or groups. So without noise this site answers them again only for the very same question, and of other
columns only for the same rows and groups.

A model is known by its vector and the scaling of its features: no loss depends on anything else. A column is known
by its name, for a survey and a standardisation sum the same values; its slices are of other records. Reads rows
and writes none (`answered_facts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedfair.aggregation.column_statistics import statistics_question
from fedfair.aggregation.sum_kinds import sum_kind
from fedfair.plan.derived import is_noised
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import AnsweredFacts, FactTable, Rows, key, text_row
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import Term
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose

TERM = "earlier_cohort"
_KEY_BYTES = len(key(""))
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that sums are about.

    Attributes:
        key: by which it is found in the history.
        words: the same for people, such as "the column age".
        question: how it is asked about, in words; empty where there is one way.
    """

    key: bytes
    words: str
    question: str = ""


class EarlierSums:
    """The rules of one site under one plan.

    Args:
        table: this site's history; read here, and written by the owner of the rows.
        plan: the plan.
        plan_digest: of it, 32 bytes.
        schema: of its features.
        policy: the site's.
        name: the site's, for messages.
    """

    def __init__(
        self,
        table: FactTable,
        plan: Plan,
        plan_digest: bytes,
        schema: FeatureSchema,
        policy: SitePolicy,
        name: str,
    ) -> None:
        self._table, self._facts = table, AnsweredFacts(table)
        self._plan, self._digest, self._schema = plan, plan_digest, schema
        self._is_open = policy.earlier_cohort == "any" or is_noised(plan)
        self._name = name

    def decide(self, request: AggregationRequest) -> Refusal | Rows:
        """Return why a request must not be answered, or what to write down first: nothing, if it is known."""
        subjects = self.subjects(request.purpose, request.model_sha256, request.scaling_sha256)
        asked = request.cohort or self._plan.federation.collaborators
        clash = self._clash(subjects, asked)
        if clash is None:
            return self.opened(subjects, asked)
        subject, sites = clash
        reason = (
            f"{self._name} has helped to open {subject.words} over {sites} under another plan, this "
            f"would be over {_over(subject, asked)}: the difference shows who is in one of them alone"
        )
        return Refusal(reason, TERM, _over(subject, asked), sites)

    def term(self) -> Term | None:
        """Return the broken term of the policy about the columns of the plan; None where it is kept."""
        plan = self._plan
        made = schedule_of(plan, len(self._schema.numeric)).at(When.FIRST, When.SCALING, When.SLICED)
        asked = self._plan.federation.collaborators
        found = ((purpose, clash) for purpose in made if (clash := self._clash(self._columns(purpose), asked)))
        purpose, clash = next(found, (None, None))
        if purpose is None or clash is None:
            return None
        subject, sites = clash
        fault = (
            f"the plan sums {subject.words} over {_over(subject, asked)}; this site has helped to open it over "
            f"{sites} under another plan, and the difference shows who is in one of them alone"
        )
        change = (
            "let the plan begin with the model of that one, whose scaling comes along (`fedfair plan freeze "
            "--from`), or state standardize: ranges"
        )
        if purpose.statistic.is_evaluation:
            change = "set evaluation.slices: null"
        if subject.question:
            change = "let the plan state epsilon, whose noise covers the difference"
        return Term(TERM, _over(subject, asked), f"same: {sites}", fault, f"{change}; or set policy.{TERM}: any")

    def subjects(self, purpose: Purpose, model: bytes, scaling: bytes) -> tuple[Subject, ...]:
        """Return the things that a sum is about; none of a training round, whose batches are drawn for it.

        Args:
            purpose: of the sum.
            model: SHA-256 of the model's vector.
            scaling: digest of the scaling of its features.
        """
        columns = self._columns(purpose)
        if not purpose.statistic.is_evaluation:
            return columns
        return (Subject(key("model over", model.hex(), scaling.hex()), "an evaluation of this model"), *columns)

    def opened(self, subjects: Iterable[Subject], sites: Sequence[str]) -> Rows:
        """Return the rows that remember that things were opened over a set of sites; none where they are known."""
        rows: Rows = ()
        for subject in subjects:
            text = _over(subject, sites)
            place = key("sites", text)
            known = self._table.get(subject.key) or b""
            entry = self._digest + place
            if entry not in _entries(known):
                told = text_row(place, text)
                rows += ((subject.key, known + entry),) if told in rows else (told, (subject.key, known + entry))
        return rows

    def _columns(self, purpose: Purpose) -> tuple[Subject, ...]:
        """Return the columns that a sum tells of, whatever the model is."""
        names = sum_kind(purpose).columns(self._plan, self._schema)
        if self._plan.statistics is None:
            return tuple(map(_column, names))
        question, rows = (statistics_question(self._plan, of_columns=whole) for whole in (True, False))
        columns = (Subject(key("statistics over", name), f"statistics of {name}", question) for name in names)
        return (Subject(key("records over"), "the number of records", rows), *columns)

    def _clash(self, subjects: Iterable[Subject], asked: Sequence[str]) -> tuple[Subject, str] | None:
        """Return the first thing that was opened over other sites under another plan."""
        if self._is_open:
            return None
        for subject in subjects:
            here = key("sites", _over(subject, asked))
            for entry in _entries(self._table.get(subject.key) or b""):
                plan, place = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
                if plan != self._digest and place != here:
                    return subject, self._facts.text(place) or "other sites"
        return None


def _column(name: str) -> Subject:
    return Subject(key("column over", name), f"the column {name}")


def _over(subject: Subject, sites: Sequence[str]) -> str:
    """Return over which sites something is opened, and how it is asked."""
    return f"{_listed(sites)}; {subject.question}" if subject.question else _listed(sites)


def _entries(value: bytes) -> list[bytes]:
    width = _DIGEST_BYTES + _KEY_BYTES
    return [value[start : start + width] for start in range(0, len(value), width)]


def _listed(sites: Sequence[str]) -> str:
    return ", ".join(sorted(sites))
