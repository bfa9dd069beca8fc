"""A site with two studies, made once; each test has a copy of its own."""

import shutil
from pathlib import Path

import pytest

from collaborator.study_review.examination import Examination, examine
from fedfair.consent.inbox import study_folder
from tests.consent import site
from tests.consent.people import NAMES


@pytest.fixture(scope="session")
def whole_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site that has approved age-1, and is asked about age-2."""
    home = tmp_path_factory.mktemp("inbox") / "clinic-a"
    site.make_site(home)
    site.approve_site(site.propose(home, "age-1", site.plan_of(), words="does age matter?"))
    site.propose(home, "age-2", site.plan_of(rounds=9), words="nine rounds")
    for name in NAMES:
        (home / "people" / f"{name}.txt").write_text(site.PASSWORDS[name])
    return home


@pytest.fixture
def home(whole_site: Path, tmp_path: Path) -> Path:
    """Return a copy of that site's folder."""
    return shutil.copytree(whole_site, tmp_path / "clinic-a")


@pytest.fixture(scope="session")
def found(whole_site: Path) -> Examination:
    """Return what an examination of age-2 finds."""
    return examine(whole_site / "collaborator.yaml", study_folder(whole_site, "age-2").plan)
