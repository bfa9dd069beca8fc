"""`collaborator check`: would a start work? Every step of it, without taking part.

Each item is tried even when an earlier one failed, as far as it can be, so that one visit to a site finds all of
its faults. The aggregator's view comes through its `Check` method.

A site may have forgotten a run that it took part in: its state is gone, and its models are still there. A start
cannot refuse, since a site may take part again; but what it answered before is
no longer known, and that is what its limits on repeated questions rest on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from collaborator import preparation
from collaborator.computing.computation import Computation, KnownRecords
from collaborator.continued_run import beginning_words
from collaborator.data_history import DataComparison, compare_with_last_run
from collaborator.egress import EgressRecord
from collaborator.link import ask
from collaborator.participation import worker_of
from collaborator.plan_change import state_stem
from collaborator.records import SiteLogs
from collaborator.withdrawn.run_lineage import RunLineage
from fedfair.aggregation.masking_terms import guarantee
from fedfair.errors import DataError, FedfairError
from fedfair.identity.expiry import days_until
from fedfair.identity.preflight import preflight
from fedfair.identity.store import SiteIdentity
from fedfair.identity.tls import channel_credentials
from fedfair.news.event import News
from fedfair.plan.derived import greatest_weight, is_masked
from fedfair.plan.digest import format_digest
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.terms import CODE_TERMS
from fedfair.process.exit_status import ExitStatus, exit_status
from fedfair.run.saved_model import read_saved
from fedfair.tables.profile import DataProfile
from fedfair.training.binding import PlanBinding
from fedfair.wire.calling import Address
from fedfair.wire.frames import CheckReply, CheckRequest, Hello

_Found = TypeVar("_Found")
_OS_REMEDY = "let this user read and write there, and make room on the disk"


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """One thing that was looked at.

    Attributes:
        name: a word or two.
        passed: whether it is as it must be.
        detail: what was found, or what is wrong.
        remedy: what to do; empty where it passed.
        status: the exit status of a start that meets this item.
        profile: what the site's records look like, of the item about its data alone.
        last_run: what changed in them since the last run, of the same item.
    """

    name: str
    passed: bool
    detail: str
    remedy: str = ""
    status: int = ExitStatus.DONE
    profile: DataProfile | None = None
    last_run: DataComparison | None = None


class _Checklist:
    """Collects items; `look` returns what a step found, or None where it failed."""

    def __init__(self) -> None:
        self.items: list[CheckedStep] = []

    def look(self, name: str, step: Callable[[], _Found], words: Callable[[_Found], str]) -> _Found | None:
        try:
            found = step()
        except FedfairError as fault:
            self.items.append(CheckedStep(name, False, fault.message, fault.remedy, exit_status(fault)))
            return None
        except OSError as fault:
            words_of_fault = f"{fault.strerror or fault} ({fault.filename})" if fault.filename else str(fault)
            self.items.append(CheckedStep(name, False, words_of_fault, _OS_REMEDY, exit_status(fault)))
            return None
        self.items.append(CheckedStep(name, True, words(found)))
        return found


def check_site(
    site: preparation.PreparedSite, find_address: Callable[[], Address], logs: Path
) -> tuple[CheckedStep, ...]:
    """Return every item, in the order of a start.

    Args:
        site: the site, whatever its policy says of the plan.
        find_address: returns where the aggregator is and how it is reached; raises FedfairError.
        logs: the folder of this site's metrics.

    Of a plan whose code must not run nothing is computed, and of one that the policy refuses nothing is sent.
    """
    with ExitStack() as opened:
        return _checked(site, find_address, logs, opened)


def _checked(
    site: preparation.PreparedSite, find_address: Callable[[], Address], logs: Path, opened: ExitStack
) -> tuple[CheckedStep, ...]:
    checklist = _Checklist()
    look = checklist.look
    address = look("address", find_address, lambda found: f"{found}, {found.route.words}")
    broken = _broken_terms(site)
    look("policy", lambda: preparation.keep_policy(site), lambda _: "allows this plan")
    look("protection", lambda: guarantee(site.plan), lambda words: words)
    local = None if broken & CODE_TERMS else _look_at_computation(site, checklist, opened, allowed=not broken)
    identity = look("certificate", site.identity, _identity_words)
    if local is not None and identity is not None:
        local = _look_at_state(site, identity, local, checklist)
    look("logs", lambda: SiteLogs(logs, site.participant).close(), lambda _: str(logs))
    if identity is None:
        return tuple(checklist.items)
    now = datetime.now(UTC)
    server = None
    if address is not None:
        server = look(
            "connection",
            lambda: preflight(address.host, address.port, identity, now, route=address.route),
            lambda found: f"{address} over {found.tls_version}, {address.route.words}",
        )
    if local is None:
        return tuple(checklist.items)
    record = look("egress record", lambda: EgressRecord(site, local.binding.digest), lambda _: str(site.egress))
    if record is None:
        return tuple(checklist.items)
    with closing(record):
        if broken or address is None or local.approval is None or server is None:
            return tuple(checklist.items)
        request = _question(preparation.introduction(site, identity, local.binding.digest, local.approval))
        credentials = channel_credentials(identity, server)
        reply = look(
            "aggregator", lambda: asyncio.run(ask(address, credentials, request, record)), lambda _: "answers"
        )
    return (*checklist.items, *_remote_items(reply))


@dataclass(frozen=True, slots=True)
class _Local:
    """The findings on this machine; None for what failed."""

    binding: PlanBinding
    computation: Computation
    records: KnownRecords | None
    approval: bytes | None = None


def _broken_terms(site: preparation.PreparedSite) -> frozenset[str]:
    """Return the terms of the policy that the plan breaks; the item `policy` says so in words."""
    try:
        preparation.keep_policy(site)
    except PolicyError as fault:
        return frozenset(term.key for term in fault.broken)
    except FedfairError:
        # What the plan begins with is another state or model than this site's own.
        return frozenset({"initial_weights"})
    return frozenset()


def _look_at_computation(
    site: preparation.PreparedSite, checklist: _Checklist, opened: ExitStack, *, allowed: bool
) -> _Local | None:
    """Look at the data and the plan's digest, for which the plan's code runs; None where there is no digest.

    What the policy says of numbers of records is looked at where it allows all that was known before.
    """
    look = checklist.look
    computation = preparation.computation_of(site)
    opened.callback(computation.close)
    read = look("data", computation.records, partial(_data_words, site))
    if read is not None:
        compared = compare_with_last_run(site, read.profile, datetime.now(UTC))
        checklist.items[-1] = replace(checklist.items[-1], profile=read.profile, last_run=compared)
    if read is not None and allowed:
        look(
            "policy for these records",
            partial(preparation.keep_policy, site, read.held),
            lambda _: "allows them",
        )
    look("withdrawals", partial(RunLineage(site.config).check, site.plan), _withdrawal_words)
    binding = look("plan digest", computation.binding, lambda b: format_digest(b.digest))
    look("worker", lambda: computation.words, "; ".join)
    if binding is None:
        return None
    if site.plan.training.initial is not None:
        begun = partial(beginning_words, site.runs, site.state, site.participant, site.plan, binding)
        look("initial weights", begun, str)
    look("earlier sums", lambda: preparation.keep_history(site, binding), lambda _: str(site.history_file))
    if read is not None and site.keeps_ledger:
        look("privacy", partial(preparation.forecast_of, site, binding.digest, read.training), "; ".join)
    return _Local(binding, computation, read)


def _look_at_state(
    site: preparation.PreparedSite, identity: SiteIdentity, local: _Local, checklist: _Checklist
) -> _Local:
    """Look at the approval, and at what this site must not forget; return what was found with the approval."""
    look, binding, records = checklist.look, local.binding, local.records
    approval = look(
        "approval",
        lambda: preparation.read_approval(site, identity.signing_key.public_key(), binding.digest),
        lambda _: "of this very plan",
    )
    if records is not None:
        # As a start does it, whatever the approval says; nothing is released, so no privacy budget is needed.
        ready = look(
            "computation",
            lambda: preparation.assemble(site, binding, approval or b"", records, None, local.computation),
            _computation_words,
        )
        if ready is not None:
            told: list[News] = []
            stem = state_stem(site.participant, binding.digest)
            forgotten = forgotten_runs(site.state, stem, site.runs, format_digest(binding.digest))
            look(
                "state",
                lambda: worker_of(ready, site.state, told.append).close(),
                lambda _: "; ".join(filter(None, (_state_words(site, told), forgotten))),
            )
    return replace(local, approval=approval)


def _withdrawal_words(withdrawn: int) -> str:
    return f"{withdrawn} persons have withdrawn" if withdrawn else "nobody has withdrawn"


def _data_words(site: preparation.PreparedSite, found: KnownRecords) -> str:
    count = f"{found.training} training records"
    return "; ".join((*(found.withheld or (count,)), *site.secret_warnings))


def _state_words(site: preparation.PreparedSite, told: Sequence[News]) -> str:
    return "; ".join((str(site.state), *(news.sentence for news in told)))


def _question(hello: Hello) -> CheckRequest:
    return CheckRequest(
        hello.protocol_version,
        hello.software_version,
        hello.plan_digest,
        hello.approval,
        hello.certificate_binding,
        time.time(),
    )


def _computation_words(ready: preparation.Readiness) -> str:
    plan, layout = ready.site.plan, ready.task.layout
    words = f"{layout.dimension} parameters in {layout.dtype.name}"
    if not is_masked(plan):
        return words
    return f"{words}; a weight of {ready.task.training_weight:g}, the plan allows at most {greatest_weight(plan)}"


def _identity_words(identity: SiteIdentity) -> str:
    days = days_until(identity.certificate.not_valid_after_utc, datetime.now(UTC))
    until = f"{identity.certificate.not_valid_after_utc:%Y-%m-%d}, {days} days left"
    return "; ".join((f"{identity.participant.uri} until {until}", *identity.warnings))


def _remote_items(reply: CheckReply | None) -> Iterator[CheckedStep]:
    for item in reply.items if reply is not None else ():
        detail, _, remedy = item.detail.partition("   -> ")
        # A start is refused by its peer then.
        status = ExitStatus.DONE if item.passed else ExitStatus.FAULT
        yield CheckedStep(f"aggregator: {item.name}", item.passed, detail, remedy, status)


MODELS = "*/save/last.safetensors"


def forgotten_runs(state: Path, stem: str, runs: Path, plan_digest: str) -> str:
    """Return what is said of earlier runs of a plan of which the state knows nothing; empty where all is there.

    Args:
        state: the folder of the site's state.
        stem: what the names of the plan's files in it begin with.
        runs: the folder of the site's own copies of runs.
        plan_digest: "sha256:" and 64 hex digits.
    """
    # The one file that only a sum writes: others are made by whoever looks.
    if (state / f"{stem}.run").exists():
        return ""
    known = [path for path in sorted(runs.glob(MODELS)) if _plan_of(path) == plan_digest]
    if not known:
        return ""
    return (
        f"{state} knows nothing of {len(known)} earlier runs of this plan, whose models are in {runs}: restore it "
        "from a backup, or what this site has answered before is forgotten"
    )


def _plan_of(path: Path) -> str:
    """Return the digest of the plan that a model is of; empty where its file cannot be read."""
    try:
        return read_saved(path).saved.plan_digest
    except DataError:
        # What is damaged proves nothing.
        return ""
