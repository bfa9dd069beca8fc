"""A proposed study in the inbox: what is wrong with the disk says nothing of the study."""

from pathlib import Path

import pytest

from collaborator.standing.fetching import UnfitStudyError, unpack_study
from fedfair.consent.inbox import StudyFolder
from fedfair.consortium.acts import Act, ActKind
from fedfair.errors import StateError
from fedfair.plan.loading import load_plan
from fedfair.run.initial_model import read_initial_model
from fedfair.workspace.archive import pack
from tests.full_disk import full_beyond
from tests.hub.hub_kit import HEART, SITES, Consortium
from tests.plans import small_plan


@pytest.fixture
def arrived(tmp_path: Path) -> tuple[Act, StudyFolder]:
    """Return an act and the folder of its study, with the archive that was fetched."""
    made = Consortium(tmp_path).made().workspace("stroke", small_plan(rounds=1))
    plan_digest = read_initial_model(made.plan, load_plan(made.plan)).plan_digest
    act = Act(ActKind.SUBMITTED, HEART, "bert", "2027-01-01", study="stroke", plan_digest=plan_digest, sites=SITES)
    folder = StudyFolder(tmp_path / "studies" / "stroke")
    folder.path.mkdir(parents=True)
    folder.archive.write_bytes(pack(made.folder))
    return act, folder


def test_a_full_disk_makes_no_study_unfit_and_the_next_try_takes_it(arrived: tuple[Act, StudyFolder]) -> None:
    act, folder = arrived
    with full_beyond(10), pytest.raises(StateError, match="cannot be written"):
        unpack_study(act, folder, SITES[0])
    unpack_study(act, folder, SITES[0])
    assert folder.plan.exists()


def test_an_archive_that_is_gone_makes_no_study_unfit(arrived: tuple[Act, StudyFolder]) -> None:
    act, folder = arrived
    folder.archive.unlink()
    with pytest.raises(StateError, match="cannot be read"):
        unpack_study(act, folder, SITES[0])


def test_an_archive_that_is_unsound_makes_its_study_unfit(arrived: tuple[Act, StudyFolder]) -> None:
    act, folder = arrived
    folder.archive.write_bytes(folder.archive.read_bytes()[:-30])
    with pytest.raises(UnfitStudyError):
        unpack_study(act, folder, SITES[0])
