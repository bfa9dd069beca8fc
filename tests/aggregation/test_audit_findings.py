"""An opened audit: how many groups share the chance of a mistake, which are told, and what it says of epsilon."""

import numpy as np
import pytest

from fedfair.aggregation.audit_findings import CHANCE, AuditFindings, audit_findings
from fedfair.aggregation.audit_sums import AuditLayout, AuditQuestion, ScoredRecords, audit_header
from fedfair.plan.derived import audited_share, audited_splits
from fedfair.privacy.membership import ScoreCounts, found_at
from tests import plans

LAYOUT = AuditLayout(("loss",), 3, 0, 1.6)


def found(*, fewest: int = 5, linked: int = 0) -> AuditFindings:
    """Return the findings of 900 members with low scores and 900 others, of whom 4 each are of the last class."""
    labels = np.array([0, 1] * 448 + [2] * 4)
    sides = {
        name: [ScoredRecords({"loss": np.full(900, place)}, labels, np.zeros((900, 0), bool))]
        for name, place in (("train", 3), ("held_out", 40))
    }
    header = audit_header(LAYOUT, sides, linked)
    return audit_findings(header, ("a", "b"), AuditQuestion(), LAYOUT, scaling=None, share=0.5, fewest=fewest)


def test_small_groups_are_not_told_and_all_that_are_share_the_chance_of_a_mistake() -> None:
    for fewest, told in (5, 3), (4, 4):
        findings = found(fewest=fewest)
        assert (len(findings.groups), findings.untold) == (told, 4 - told)
        assert [group.label for group in findings.groups] == [None, 0, 1, 2][:told]
        counts = ScoreCounts(np.array([900.0, 0.0]), np.array([0.0, 900.0]))
        # Four mistakes at each of two rates, of every group that is told.
        assert findings.groups[0].found[0] == found_at(counts, 0.01, CHANCE / (8 * told))


def test_persons_whom_another_site_may_know_leave_epsilon_open() -> None:
    epsilon = found().epsilon
    assert epsilon is not None
    assert epsilon > 3.0
    assert found(linked=1).epsilon is None


@pytest.mark.parametrize(
    ("validation", "training", "splits", "share"),
    [
        (0.3, {}, ("validation", "test"), 0.5),
        (0.3, {"output": "best"}, ("test",), 0.5 / 0.7),
        (0.3, {"output": "best", "patience": 3}, ("test",), 0.5 / 0.7),
        (0.0, {"output": "best"}, ("test",), 0.8),
    ],
)
def test_validation_records_count_where_they_chose_no_model(
    validation: float, training: dict[str, object], splits: tuple[str, ...], share: float
) -> None:
    task = {"test_fraction": 0.2, "validation_fraction": validation}
    plan = plans.parsed(task=task, training=training, evaluation={"release_audit": {}})
    assert audited_splits(plan) == splits
    assert audited_share(plan) == pytest.approx(share)
