"""Entries and accounts for tests of the ledger."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from collaborator.ledger import Ledger
from collaborator.privacy_budget import Holder, PrivacyBudget
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.releases import GaussianRelease
from tests import plans

NOW = "2031-05-04T10:11:12+00:00"
STEP = GaussianRelease("training", 2.0, 0.1, 1, clip=1.0)
LOOK = GaussianRelease("evaluation", 20.0, 1.0, 1)
PLAN_DIGEST = "sha256:" + "a" * 64


def origin(data_set: str | None = None, plan_digest: str = PLAN_DIGEST) -> Origin:
    return Origin("clinic-a", "heart", plan_digest, data_set)


def entry(release: Written = STEP, data_set: str | None = None, plan_digest: str = PLAN_DIGEST) -> LedgerEntry:
    return LedgerEntry(NOW, origin(data_set, plan_digest), release)


def written(path: Path, entries: Sequence[LedgerEntry]) -> Ledger:
    """Return a ledger that holds these entries."""
    ledger = Ledger(path)
    for one in entries:
        ledger.record(one, lambda _: None)
    return ledger


def plan(rounds: int = 40, every: int = 10, **protection: object) -> Plan:
    """Return a plan with noise; a site with 1000 records has a sampling rate of 0.1."""
    stated: dict[str, object] = {"noise_multiplier": 2.0} | protection
    return plans.parsed(
        task={"standardize": "none"},
        training={"rounds": rounds, "batch_size": 100},
        privacy={"sample_level": stated} if protection.pop("noised", True) else {},
        evaluation={"every": every},
    )


def config(**keys: object) -> SiteConfig:
    return SiteConfig.model_validate({"collaborator": "clinic-a", **keys})


def holder(of_plan: Plan, stated: SiteConfig, plan_digest: str = PLAN_DIGEST, records: int = 1000) -> Holder:
    return Holder(of_plan, stated, origin(stated.data.name, plan_digest), records)


def account(path: Path, of: Holder) -> PrivacyBudget:
    return PrivacyBudget(Ledger(path), of, lambda: datetime.fromisoformat(NOW).astimezone(UTC))
