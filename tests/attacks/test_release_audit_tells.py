"""What a release audit tells of one record to a plan that is made to read records; what a lying site can do."""

from pathlib import Path

import numpy as np
import pytest

from fedfair.aggregation.audit_sums import (
    BINS,
    PER_OCTAVE,
    AuditLayout,
    ScoredRecords,
    audit_header,
    check_audit,
    loss_bins,
)
from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.errors import RemoteProtocolError
from fedfair.privacy.membership import ScoreCounts, found_at
from tests.attacks.test_records_from_one_evaluation import Trap, everybodys, unrounded

RANGE = 1.6
LAYOUT = AuditLayout(("loss",), 0, 0, RANGE)


def test_a_plan_that_reads_records_out_of_losses_reads_none_out_of_an_audit(tmp_path: Path) -> None:
    trap = Trap(tmp_path, 256)
    losses, _, _ = everybodys(trap)
    # The trap works: a loss as it is names its person.
    assert trap.decoded(*unrounded(losses, HistogramSpec(256, RANGE))) >= 10
    counts = np.bincount(loss_bins(losses, RANGE), minlength=BINS)
    lowest = RANGE * 2.0 ** ((np.arange(BINS) - BINS + 1) / PER_OCTAVE)
    for part in np.linspace(0.0, 1.0, 9):
        guessed = lowest * 2.0 ** (part / PER_OCTAVE)
        assert trap.decoded(np.ones(BINS), guessed) == 0
    assert counts.sum() == len(losses)
    # Who knows everybody else learns the bin of the last one, and no digit more: six bits, and one of the side.
    told = {tuple(np.bincount(loss_bins(loss[None], RANGE), minlength=BINS)) for loss in losses}
    assert len(told) <= BINS


def header_of(train: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Return what a site adds whose records have these bins."""
    sides = {
        name: [ScoredRecords({"loss": bins}, np.zeros(len(bins), int), np.zeros((len(bins), 0), bool))]
        for name, bins in (("train", train), ("held_out", held_out))
    }
    return audit_header(LAYOUT, sides, 0)


def test_a_site_that_lies_can_hide_members_or_accuse_a_model_and_nobody_sees_it() -> None:
    source = np.random.default_rng(0)
    honest = header_of(source.integers(0, 8, 600), source.integers(8, BINS, 2000))

    def lower(total: np.ndarray) -> float:
        check_audit(total, LAYOUT)
        return found_at(ScoreCounts(*LAYOUT.header.read(total)["loss"]), 0.01, 0.00625).lower

    assert lower(honest) > 0.9
    # Held-out records that nobody has, at the low end: the same as a model that is sure of others, too.
    hiding = header_of(np.zeros(0, int), np.zeros(60, int))
    assert lower(honest + hiding) == 0.0
    innocent = header_of(*source.integers(0, BINS, (2, 1000)))
    accusing = header_of(np.zeros(200, int), np.full(5000, BINS - 1))
    assert lower(innocent) < 0.05 < lower(innocent + accusing)


def test_what_a_lying_site_takes_away_beyond_the_counts_of_others_is_refused() -> None:
    honest = header_of(np.arange(10), np.arange(10))
    taken = header_of(np.zeros(2, int), np.zeros(0, int))
    check_audit(honest, LAYOUT)
    for total in honest - taken, honest + 0.25 * taken:
        with pytest.raises(RemoteProtocolError, match="no records of both kinds have"):
            check_audit(total, LAYOUT)
