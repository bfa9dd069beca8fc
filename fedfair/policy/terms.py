"""A site's policy, term by term: what a plan asks, what the site allows, and the words where they do not fit.

Decides nothing beyond the comparison. `plan_check.py` turns the broken terms into one refusal, `fedfair plan
check` shows all of them. What counts how often each term was used up during a run is the collaborator's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import (
    audits_release,
    clip_ceiling,
    given_references,
    is_masked,
    is_unevaluated,
    protects_records,
    quorum,
    resists_lies,
    trains,
)
from fedfair.plan.description import TRAP_WEIGHTS
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.fields import OWN_RUN, SEED
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.policy.disclosures import of_evaluation, of_run
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.table import Purpose

CODE_TERMS = frozenset({"module_code", "allow_module_code"})
"""The terms about code: where one is broken, nothing of the plan may be made, not even its digest."""

ANY = "any"
NONE = "none"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a policy, held against what is asked.

    Attributes:
        key: its name under `policy` in `collaborator.yaml`.
        asked: what is asked for, in a word or two.
        allowed: what the site allows, in a word or two.
        fault: the refusal in words, without its remedy; empty where the term is kept.
        change: what the site would have to change to allow it; empty where the term is kept.
    """

    key: str
    asked: str
    allowed: str
    fault: str = ""
    change: str = ""

    @property
    def kept(self) -> bool:
        """Return whether what is asked is allowed."""
        return not self.fault

    def unless(self, kept: bool, fault: str, change: str) -> Term:
        """Return this term as it is where it is kept, and with its fault and what would mend it where not."""
        return self if kept else replace(self, fault=fault, change=change)


@dataclass(frozen=True, slots=True)
class AskedTerms:
    """The request that a site is asked to agree to.

    Attributes:
        plan: the plan.
        code_digest: 32 bytes over all code that it names, by `digest.code_digest`; None where it names none.
        evaluation_only: whether a saved model of the plan is evaluated, and not the whole plan run.
        own_run: whether the plan begins with what this site's own copy of a run ended with.
        records: how many this site has, over all splits; None where they have not been read.
    """

    plan: Plan
    code_digest: bytes | None = None
    evaluation_only: bool = False
    own_run: bool = False
    records: int | None = None


def terms(asked: AskedTerms, policy: SitePolicy) -> Iterator[Term]:
    """Yield every term of a policy that what is asked touches, kept or broken."""
    plan = asked.plan
    yield _plain_sums(plan, policy)
    yield from _masking(plan, policy)
    yield from _code(asked, policy)
    yield from _beginning(asked, policy)
    yield _site_means(plan, policy)
    yield from bins_terms(plan, policy, asked.records)
    if not asked.evaluation_only:
        yield _algorithm(plan, policy)
    yield _ceiling("max_rounds", "training.rounds", plan.training.rounds, policy.max_rounds)
    yield _cohort(plan, policy)
    yield from _rows(plan, policy)
    yield from _purposes(asked, policy)
    yield from _revelations(asked, policy)
    if not asked.evaluation_only and trains(plan):
        yield _release(plan, policy)


def code_fault(asked: AskedTerms, policy: SitePolicy) -> Term | None:
    """Return the broken term about a plan's own code; None where it may run."""
    return next((term for term in _code(asked, policy) if not term.kept), None)


def weights_fault(asked: AskedTerms, policy: SitePolicy) -> Term | None:
    """Return the broken term about what a plan begins with; None where it may begin with that."""
    return next((term for term in _beginning(asked, policy) if not term.kept), None)


def _plain_sums(plan: Plan, policy: SitePolicy) -> Term:
    plain = not is_masked(plan)
    fault = "the plan asks for secure_aggregation.mode: off; this site's policy refuses plain sums"
    term = Term("allow_plain_sums", _yes(plain), _yes(policy.allow_plain_sums))
    return term.unless(not plain or policy.allow_plain_sums, fault, "set policy.allow_plain_sums: true")


def _masking(plan: Plan, policy: SitePolicy) -> Iterator[Term]:
    stated = plan.secure_aggregation
    if not is_masked(plan):
        return
    floors = {
        "mode": resists_lies(plan) or policy.mode == "semi-honest",
        "colluders": stated.colluders >= policy.colluders,
        "key_agreement": policy.key_agreement in {"x25519", stated.key_agreement},
        "ring_bits": stated.ring_bits >= policy.ring_bits,
    }
    for key, met in floors.items():
        value, wanted = getattr(stated, key), getattr(policy, key)
        term = Term(key, f"{value}", f"{wanted}" if isinstance(wanted, str) else f"{wanted} or more")
        fault = f"the plan asks for secure_aggregation.{key}: {value}; this site's policy wants {wanted}"
        yield term.unless(met, fault, f"set policy.{key}: {value}")
    place, clip = clip_ceiling(plan)
    yield _ceiling("max_clip", place, clip, policy.max_clip)
    yield _ceiling("max_attempts", "federation.max_attempts", plan.federation.max_attempts, policy.max_attempts)


def _code(asked: AskedTerms, policy: SitePolicy) -> Iterator[Term]:
    references = asked.plan.task.references
    if not references:
        return
    named = ", ".join(references)
    digest = NONE if asked.code_digest is None else format_digest(asked.code_digest)
    if not policy.module_code:
        term = Term("allow_module_code", f"{named}: {digest}", _yes(policy.allow_module_code))
        fault = f"the plan runs code of its own here ({named}); this site's policy refuses module code"
        change = f"read that code, then set policy.module_code: [{digest}]"
        yield term.unless(policy.allow_module_code, fault, change)
        return
    term = Term("module_code", f"{named}: {digest}", ", ".join(policy.module_code))
    fault = f"the plan runs other code here ({named}, {digest}) than this site's policy names"
    change = f"read that code, then add {digest} to policy.module_code"
    yield term.unless(digest in policy.module_code, fault, change)


def _beginning(asked: AskedTerms, policy: SitePolicy) -> Iterator[Term]:
    yield _initial_weights(asked, policy)
    yield from _given_references(asked, policy)


def _initial_weights(asked: AskedTerms, policy: SitePolicy) -> Term:
    allowed, initial = policy.initial_weights, asked.plan.training.initial
    listed = ", ".join(allowed)
    if initial is None:
        term = Term("initial_weights", SEED, listed)
        fault = f"the plan begins with the weights of its seed; this site's policy allows {listed}"
        return term.unless(SEED in allowed, fault, f"add {SEED} to policy.initial_weights")
    digest = format_digest(beginning_digest(initial))
    term = Term("initial_weights", f"{OWN_RUN}: {digest}" if asked.own_run else digest, listed)
    if asked.own_run:
        fault = f"the plan begins with weights of this site's own run; this site's policy allows {listed}"
        change = f"add {OWN_RUN} to policy.initial_weights"
        return term.unless(digest in allowed or OWN_RUN in allowed, fault, change)
    fault = (
        f"the plan begins with weights ({digest}) that are of no run of which this site has a copy; this site's "
        f"policy allows {listed}; {TRAP_WEIGHTS}"
    )
    change = f"find out where they come from, then add {digest} to policy.initial_weights"
    return term.unless(digest in allowed, fault, change)


def _given_references(asked: AskedTerms, policy: SitePolicy) -> Iterator[Term]:
    named, allowed = given_references(asked.plan), policy.initial_weights
    if named is None:
        return
    listed = ", ".join(allowed)
    term = Term("initial_weights", f"{OWN_RUN}: references {named}" if asked.own_run else named, listed)
    fault = (
        f"the plan takes the references {named} of a run of which this site has a copy; its policy allows {listed}"
        if asked.own_run
        else f"the plan takes references ({named}) that are of no run of which this site has a copy; this site's "
        f"policy allows {listed}; chosen references can single out records, and may have seen this site's own"
    )
    change = f"find out where they come from, then add {named} to policy.initial_weights"
    yield term.unless(named in allowed or (asked.own_run and OWN_RUN in allowed), fault, change)


def _site_means(plan: Plan, policy: SitePolicy) -> Term:
    wanted, allowed = plan.evaluation.site_means, policy.publish_site_means
    fault = "the plan asks for evaluation.site_means: true; this site's policy keeps its own means to itself"
    term = Term("publish_site_means", _yes(wanted), _yes(allowed))
    return term.unless(not wanted or allowed, fault, "set policy.publish_site_means: true")


def bins_terms(plan: Plan, policy: SitePolicy, records: int | None) -> Iterator[Term]:
    """Yield the terms about how finely losses are resolved; none where noise covers every record, or site.

    Args:
        plan: what is asked.
        policy: the site's.
        records: how many this site has, over all splits; None where they have not been read.
    """
    bins, most = plan.evaluation.bins, policy.max_bins_per_record
    if is_unevaluated(plan) or protects_records(plan):
        return
    yield _ceiling("max_bins", "evaluation.bins", bins, policy.max_bins)
    if not records:
        return  # Not read yet, or none that count: such a site adds zeros.
    term = Term("max_bins_per_record", f"{bins} bins, {records} records", f"at most {number(most)} a record")
    # What is said of the records stays here: the aggregator hears the name of the term alone.
    fault = (
        f"the plan asks for evaluation.bins: {bins}, this site has {records} records; its policy allows "
        f"{number(most)} bins for each record"
    )
    change = f"set policy.max_bins_per_record: {math.ceil(bins / records)} or more"
    yield term.unless(bins <= most * records, fault, change)


def _algorithm(plan: Plan, policy: SitePolicy) -> Term:
    name, allowed = plan.training.algorithm, policy.algorithms
    term = Term("algorithms", name, ANY if allowed is None else ", ".join(allowed))
    fault = (
        f"the plan asks for training.algorithm: {name}, of which each round reveals {ALGORITHMS[name].reveals}; "
        f"this site's policy allows {term.allowed}"
    )
    return term.unless(allowed is None or name in allowed, fault, f"add {name} to policy.algorithms")


def least_collaborators(plan: Plan, policy: SitePolicy) -> int:
    """Return how many collaborators at least a site wants in every sum: all under masks, if it says nothing.

    Two neighbouring sums over sites that differ by one show that one's update. A plain sum shows each site's
    update in any case, so a site that allows those is asked nothing more.
    """
    silent = len(plan.federation.collaborators) if is_masked(plan) else 1
    return policy.min_collaborators or silent


def _cohort(plan: Plan, policy: SitePolicy) -> Term:
    fewest = quorum(plan)
    least = least_collaborators(plan, policy)
    term = Term("min_collaborators", f"{fewest}", ANY if least == 1 else f"{least} or more")
    fault = f"the plan sums over as few as {fewest} collaborators; this site's policy wants {least}"
    if policy.min_collaborators is None:
        count = len(plan.federation.collaborators)
        fault = (
            f"the plan sums over as few as {fewest} of {count} collaborators, and two neighbouring sums that "
            "differ by one site show its update; this site's policy states no min_collaborators, and so wants all"
        )
    return term.unless(fewest >= least, fault, f"set policy.min_collaborators: {fewest} or less")


def _rows(plan: Plan, policy: SitePolicy) -> Iterator[Term]:
    """Yield the term about what a table's rows are chosen by, and the one about how few may be left of them."""
    data = plan.task.data
    chosen = data.csv.rows if isinstance(data, CsvSource) else {}
    yield Term("min_records", "what its filters leave" if chosen else "all", f"{policy.min_records} or more")
    if not chosen or not isinstance(data, CsvSource):
        return
    others = [name for name in chosen if name not in data.csv.feature_columns]
    term = Term("rows", ", ".join(chosen), policy.rows)
    fault = f"the plan takes rows by {', '.join(others)}, which is no feature and may name one person"
    kept = not others or policy.rows == ANY
    yield term.unless(kept, f"{fault}; this site's policy allows features", "set policy.rows: any")


def _purposes(asked: AskedTerms, policy: SitePolicy) -> Iterator[Term]:
    allowed = ", ".join(policy.purposes)
    for purpose in _needed(asked):
        term = Term("purposes", purpose, allowed)
        fault = f"the plan asks for {purpose} sums; this site's policy allows {allowed}"
        yield term.unless(purpose in policy.purposes, fault, f"add {purpose} to policy.purposes")


def _needed(asked: AskedTerms) -> Iterable[str]:
    if asked.evaluation_only:
        return dict.fromkeys(
            one.policy_word for one in (purpose.statistic for purpose in Purpose) if one.is_on_demand
        )
    return dict.fromkeys(purpose.statistic.policy_word for purpose in schedule_of(asked.plan).purposes)


def _revelations(asked: AskedTerms, policy: SitePolicy) -> Iterator[Term]:
    revealed = of_evaluation(asked.plan) if asked.evaluation_only else of_run(asked.plan)
    allowed = ", ".join(policy.reveals)
    for kind, source in revealed.items():
        term = Term("reveals", kind, allowed)
        fault = f"{source} reveals {kind}; this site's policy allows {allowed}"
        yield term.unless(kind in policy.reveals, fault, f"add {kind} to policy.reveals")


def _release(plan: Plan, policy: SitePolicy) -> Term:
    planned, required = audits_release(plan), policy.release.require_audit
    term = Term("release", f"audit: {_yes(planned)}", f"require_audit: {_yes(required)}")
    fault = "the plan has no evaluation.release_audit; this site's policy takes part in no plan without one"
    change = "state evaluation.release_audit: {} in the plan, or set policy.release.require_audit: false"
    return term.unless(planned or not required, fault, change)


def _ceiling(key: str, place: str, value: float, most: float | None) -> Term:
    if most is None:
        return Term(key, number(value), ANY)
    fault = f"the plan asks for {place}: {number(value)}; this site's policy allows {number(most)}"
    term = Term(key, number(value), f"at most {number(most)}")
    return term.unless(value <= most, fault, f"set policy.{key}: {number(value)} or more")


def number(value: float) -> str:
    """Return a number as people write it: a count with all its digits."""
    return f"{value}" if isinstance(value, int) else f"{value:g}"


def _yes(value: bool) -> str:
    return "true" if value else "false"
