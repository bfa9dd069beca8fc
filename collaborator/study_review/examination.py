"""Looks at a study's plan as a start would: its digest, this site's records, its history and its ledger.

A plan's own code runs here, where the site's policy lets it, so this is a process of its own: it is started with a
configuration and a plan, and writes what it found as one JSON document. It takes no key and no passphrase, writes
no ledger, and sends nothing. A fault of one step is a text in its place; the other steps are taken all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from collaborator.computing.confinement import Allowed, confine
from fedfair.errors import FedfairError, StateError

if TYPE_CHECKING:
    from collaborator.preparation import PreparedSite
    from fedfair.privacy.spending import Spending
    from fedfair.tables.column_check import DataCheck

SECONDS = 3600.0
"""A table of many millions of rows takes minutes; whatever takes longer than this is stopped."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found.

    Attributes:
        plan_digest: "sha256:" and 64 hex digits, as this site computes it; empty where it could not.
        data: `fedfair data check` as values; empty where it could not be made.
        releases: one row for each line of the ledger: data set, federation, plan, released, noise, when.
        spent: what may be said of what the ledger has, one sentence for each data set.
        cost: what the plan would cost, in sentences; empty where this site keeps no ledger.
        faults: what a start would refuse, by the step: digest, data, policy, history, ledger.
        missing: a sentence for each protection of a process of its own that this system does not offer.
    """

    plan_digest: str = ""
    data: Mapping[str, object] = field(default_factory=dict)
    releases: tuple[tuple[str, ...], ...] = ()
    spent: tuple[str, ...] = ()
    cost: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def examined(config_file: Path, plan_file: Path) -> Examination:
    """Return what another process finds, which is started here and waited for.

    Args:
        config_file: the site's `collaborator.yaml`.
        plan_file: the plan, in the study's workspace.

    Raises:
        StateError: the process died, or took longer than an hour.
    """
    with tempfile.TemporaryDirectory(prefix="fedfair-examination-") as folder:
        target = Path(folder) / "found.json"
        command = [sys.executable, "-m", "collaborator.study_review.examination"]
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [*command, str(config_file.resolve()), str(plan_file.resolve()), str(target)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
            )
            values = json.loads(target.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired as error:
            raise StateError(f"looking at {plan_file} took longer than {SECONDS:.0f} s") from error
        except (OSError, ValueError) as error:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
            raise StateError(
                f"looking at {plan_file} ended with status {done.returncode}: {last or 'nothing was said'}",
                "try `fedfair data check` with this plan, which shows more",
            ) from error
    lines = {name: tuple(values[name]) for name in ("spent", "cost", "missing")}
    return Examination(**{**values, **lines, "releases": tuple(map(tuple, values["releases"]))})


class _Examiner:
    """Takes the steps of one examination, and remembers what failed."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}

    def look(self, step: str, look: Callable[[], _Found]) -> _Found | None:
        """Return what a step finds; None where it fails."""
        try:
            return look()
        except FedfairError as fault:
            self.faults[step] = fault.diagnostics()
        except OSError as fault:
            self.faults[step] = f"{fault.filename or 'a file'}: {fault.strerror or fault}"
        return None


def examine(config_file: Path, plan_file: Path) -> Examination:
    """Return what is found in this process; arguments as of `examined`. The plan's own code runs, where it may."""
    from collaborator.preparation import find_site

    take = _Examiner()
    site = take.look("policy", lambda: find_site(None, config_file, plan_file, None))
    if site is None:
        return Examination(faults=take.faults)
    held = take.look("ledger", lambda: _ledger(site))
    releases, spent = held or ((), ())
    if not take.look("policy", lambda: _code_may_run(site)):
        return Examination(releases=releases, spent=spent, faults=take.faults)
    data = take.look("data", lambda: _checked(site))
    if data is not None and data.errors:
        take.faults["data"] = "; ".join(data.errors)
    records = sum(data.splits.values()) if data is not None and data.splits else None
    take.look("policy", lambda: _keep_policy(site, records))
    digest = take.look("digest", lambda: _digest(site, take))
    cost = take.look("ledger", lambda: _cost(site, digest or b"", data)) or ()
    # As another process is told it.
    values = {} if data is None else json.loads(json.dumps({"warnings": data.warnings, **asdict(data)}))
    return Examination(_spelt(digest), values, releases, spent, cost, take.faults)


def _spelt(digest: bytes | None) -> str:
    from fedfair.plan.digest import format_digest

    return format_digest(digest) if digest else ""


def _code_may_run(site: PreparedSite) -> bool:
    """Return True, or refuse a plan whose code the policy does not let run."""
    from fedfair.policy.plan_check import PolicyError
    from fedfair.policy.terms import AskedTerms, code_fault

    broken = code_fault(AskedTerms(site.plan, site.code.digest), site.config.policy)
    if broken is not None:
        raise PolicyError(site.participant, (broken,))
    return True


def _checked(site: PreparedSite) -> DataCheck:
    from fedfair.tables.column_check import check_data

    return check_data(site.plan, site.config, site.participant, site.workspace, code=site.code.folder)


def _keep_policy(site: PreparedSite, records: int | None) -> None:
    from collaborator.preparation import keep_policy

    keep_policy(site, records)


def _digest(site: PreparedSite, take: _Examiner) -> bytes:
    """Return the plan's digest; what the site has summed before is held against it on the way."""
    from collaborator.preparation import keep_history
    from fedfair.training.binding import plan_binding

    binding = plan_binding(site.plan, site.code.folder)
    take.look("history", lambda: keep_history(site, binding))
    return binding.digest


def _ledger(site: PreparedSite) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return the rows of the ledger and what may be said of them; nothing is written."""
    from fedfair.privacy.budget import Budget
    from fedfair.privacy.spending import data_sets, spending

    if not (site.ledger_file.exists() or site.ledger_witness.path.exists()):
        return (), ()
    stated = site.config.budget
    budget = None if stated is None else Budget(stated.epsilon, stated.delta)
    entries = site.ledger().look()
    delta = 1e-5 if budget is None else budget.delta
    found = [spending(entries, name, delta, budget) for name in data_sets(entries)]
    rows = [
        (
            one.data_set or "all records",
            line.origin.federation,
            line.origin.plan_digest.removeprefix("sha256:")[:12],
            line.release.purpose,
            f"{line.entries}",
            line.last[:10],
        )
        for one in found
        for line in one.lines
    ]
    return tuple(rows), tuple(_said(one) for one in found)


def _said(one: Spending) -> str:
    left = "" if one.left is None else f"; of the budget {one.left:.4g} is left"
    return f"{one.statement or one.refusal}{left}"


def _cost(site: PreparedSite, digest: bytes, data: DataCheck | None) -> tuple[str, ...]:
    """Return what the plan would cost in words; nothing where this site keeps no ledger."""
    from collaborator.privacy_budget import Holder, forecast
    from fedfair.plan.digest import format_digest
    from fedfair.privacy.entries import Origin

    if not site.keeps_ledger or not digest or data is None or "train" not in data.splits:
        return ()
    kept = site.ledger_file.exists() or site.ledger_witness.path.exists()
    entries = site.ledger().look() if kept else ()
    origin = Origin(site.participant, site.federation, format_digest(digest), site.config.data.name)
    return forecast(Holder(site.plan, site.config, origin, data.splits["train"]), entries)


def main(config: str, plan: str, target: str) -> None:
    """Write what is found to a file; for `examined` alone.

    Whether this system can confine a process is tried on this one, which has nothing to do any more.
    """
    os.chdir(Path(config).parent)
    found = examine(Path(config), Path(plan))
    with Path(target).open("w", encoding="utf-8") as opened:
        missing = confine(Allowed(reads=(), writes=()))
        json.dump(asdict(replace(found, missing=missing)), opened)


if __name__ == "__main__":
    main(*sys.argv[1:])
