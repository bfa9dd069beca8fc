"""Advice from Python: that of the command, as a table, and the plan that has it."""

import html
from dataclasses import replace
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer

from fedfair.api.advice import ObjectiveAdvice, advise
from fedfair.errors import DataError, FedfairError, PlanError
from fedfair.studies.advice.document import Recommendation
from fedfair.studies.advice.search import AdviceGrid, advise_sites
from fedfair.tables.source import load_federation

FEATURES, LABELS = (part[::4] for part in load_breast_cancer(return_X_y=True))
SITES = {"a": (FEATURES[::2], LABELS[::2]), "b": (FEATURES[1::2], LABELS[1::2])}

REFERENCE = {"hidden": [2], "rounds": 2, "local_steps": 5}
QUICKLY_TRAINED = {
    "objective": {"measure": "excess", "reference": REFERENCE},
    "training": {"rounds": 5, "algorithm": "fedsrcvar"},
}


@pytest.fixture(scope="module")
def advice() -> ObjectiveAdvice:
    return advise(SITES, sizes=[0.5, 0.3], tradeoffs=[0.1], **QUICKLY_TRAINED)


def test_the_advice_is_that_of_the_search_and_its_plan_has_it(advice: ObjectiveAdvice) -> None:
    assert advice.document.sizes == (0.3, 0.5)
    objective = {"measure": "loss", "worst_group_size": 0.5, "tradeoff": 0.1, "reference": None}
    found = Recommendation(worst_group_size=0.5, tradeoff=0.1, kind="protect", sure=True)
    cases: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
        ({}, {"objective": objective}),
        ({"measure": "excess"}, {"objective": {**objective, "measure": "excess", "reference": REFERENCE}}),
        (
            {"kind": "plain"},
            {
                "objective": {"measure": "loss", "reference": None, "worst_group_size": 1.0, "tradeoff": 1.0},
                "training": {"algorithm": "fedavg"},
            },
        ),
        (
            {"learning_rate": 0.1},
            {"objective": objective, "training": {"server_optimizer": {"name": "adam", "learning_rate": 0.1}}},
        ),
    )
    for changed, expected in cases:
        document = advice.document.model_copy(update={"recommendation": found.model_copy(update=changed)})
        applied = replace(advice, document=document).applied()
        assert applied == advice.plan.with_(**expected)
    assert repr(advice) == advice.document.sentences[0]
    assert advice.document.sentences[0] in html.unescape(advice._repr_html_()).replace("\N{NO-BREAK SPACE}", " ")
    assert "<svg" in advice._repr_html_()
    table = advice.to_frame()
    row = table[(table.trained_for == 0.3) & (table.tradeoff == 0.1) & (table.group_size == 0.5)].iloc[0]
    model = next(one for one in advice.document.models if (one.worst_group_size, one.tradeoff) == (0.3, 0.1))
    assert row.worst == model.held_out.group(0.5).worst
    assert len(table) == 2 * (1 + len(advice.document.models))


def test_a_plan_on_disk_is_advised_as_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    file = tmp_path / "plan" / "plan.yaml"
    file.write_text(
        "federation: {name: f, collaborators: [a, b]}\n"
        "task: {data: breast-cancer, partition: {scheme: random}, model: {name: linear}}\ntraining: {rounds: 1}\n"
        "objective: {measure: excess, reference: {hidden: [2], rounds: 2, local_steps: 5}}\n"
    )
    found = advise(file, sizes=[0.4], tradeoffs=[0.1])
    grid = AdviceGrid((0.4,), (0.1,))
    expected = advise_sites(found.plan, load_federation(found.plan, tmp_path), tmp_path, grid)
    assert found.document == expected.model_copy(update={"seconds": found.document.seconds})


def test_what_cannot_be_advised_is_refused(advice: ObjectiveAdvice) -> None:
    unserved = replace(advice, document=advice.document.model_copy(update={"recommendation": None}))
    with pytest.raises(DataError, match="there is no recommendation"):
        unserved.applied()
    refused: tuple[tuple[dict[str, list[float]], str], ...] = (
        ({"sizes": [1.0]}, "sizes: 1.0 is no number above 0 and below 1"), ({"sizes": []}, "sizes is empty"),
        ({"tradeoffs": [-0.1]}, "tradeoffs: -0.1 is no number from 0 to below 1"),
    )  # fmt: skip
    for stated, words in refused:
        with pytest.raises(PlanError, match=words):
            advise(SITES, **stated)
    with pytest.raises(FedfairError, match="no section of a plan"):
        advise(SITES, objectiv={})
