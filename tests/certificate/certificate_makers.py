"""Plans, evaluations and certificates for tests, from losses that a test knows."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_file import EvaluationRecord, split_sums
from fedfair.aggregation.evaluation_sums import evaluation_layout
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, loss_block
from fedfair.certificate.document import Certificate
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.seal import seal
from fedfair.plan.schema import Plan
from tests import plans
from tests.oracles.header_places import evaluation_header_length, split_header

PLAN_DIGEST = "sha256:" + "01" * 32
MODEL_DIGEST = "sha256:" + "02" * 32
SPEC = HistogramSpec(64, 4.0)
CLASSES = 2
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NOW = "2030-01-31T12:00:00+00:00"


def make_plan(
    *,
    min_group: int = 1,
    site_means: bool = False,
    site_weights: dict[str, float] | None = None,
    **training: object,
) -> Plan:
    return plans.parsed(
        ("clinic-a", "clinic-b"),
        training={"rounds": 3, **training},
        evaluation={
            "bins": SPEC.bins, "loss_range": SPEC.loss_range, "min_group": min_group,
            "site_means": site_means, "site_weights": site_weights or {},
        },
    )  # fmt: skip


def make_record(**losses: NDArray[np.float64]) -> EvaluationRecord:
    """Return the evaluation of splits with these losses, each dealt to two sites."""
    blocks = [
        sum(loss_block(part, part < 0.7, float(part.sum()), SPEC) for part in (values[::2], values[1::2]))
        for values in (losses.get(split, np.zeros(0)) for split in SPLITS)
    ]
    header = np.zeros(evaluation_header_length(SPEC, CLASSES))
    split_header(header, SPEC, CLASSES)[0][:] = blocks
    return EvaluationRecord(
        plan_digest=PLAN_DIGEST,
        model_digest=MODEL_DIGEST,
        round=3,
        threshold=0.1,
        participants=2,
        classes=CLASSES,
        masked=True,
        bins=SPEC.bins,
        loss_range=SPEC.loss_range,
        splits=split_sums(header, evaluation_layout(SPEC, CLASSES)),
    )


def make_told_record(sites: dict[str, int], losses: NDArray[np.float64]) -> EvaluationRecord:
    """Return the evaluation of test losses that also tells how many of them single sites have."""
    record = make_record(test=losses)
    return record.model_copy(
        update={"splits": {"test": record.splits["test"].model_copy(update={"sites": sites})}}
    )


def some_losses(records: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).exponential(0.3, records)


def make_certificate(losses: NDArray[np.float64] | None = None, plan: Plan | None = None) -> Certificate:
    """Return an unsigned certificate of test losses."""
    record = make_record(test=some_losses() if losses is None else losses)
    terms = IssueTerms(split="test", group_sizes=(0.05, 0.1, 0.3, 1.0))
    return draft(record, plan or make_plan(), terms, issued_at=NOW)


def make_sealed(losses: NDArray[np.float64] | None = None) -> Certificate:
    return seal(make_certificate(losses), "aggregator", KEY)
