"""Outcomes as tables and pictures, and models side by side on the same held-out records."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from sklearn.datasets import load_breast_cancer

from fedfair.api.simulation import SimulatedFederation, simulate
from fedfair.errors import DataError
from fedfair.process.rounds_bar import rounds_bar

FEATURES, LABELS = load_breast_cancer(return_X_y=True)


def outcome_of(**sections: dict[str, object]) -> SimulatedFederation:
    order = np.random.default_rng(0).permutation(len(LABELS))
    sites = {"a": (FEATURES[order[:300]], LABELS[order[:300]]), "b": (FEATURES[order[300:]], LABELS[order[300:]])}
    # Nothing here is about what is measured, and no references are trained.
    stated = {"task": {"test_fraction": 0.3}, "training": {"rounds": 8, "output": "last"}}
    return simulate(sites, **(stated | {"objective": {"measure": "loss"}} | sections))


@pytest.fixture(scope="module")
def fair() -> SimulatedFederation:
    return outcome_of()


@pytest.fixture(scope="module")
def plain() -> SimulatedFederation:
    return outcome_of(objective={"tradeoff": 1.0})


def test_a_comparison_has_the_figures_of_both_and_their_paired_difference(
    fair: SimulatedFederation, plain: SimulatedFederation
) -> None:
    found = fair.compare(name="fair", plain=plain)
    table = found.to_frame()
    values = table.pivot_table("value", "model", "figure")
    for name, run in (("fair", fair), ("plain", plain)):
        risks = run.evaluate()
        held = {"everybody": risks.mean, "accuracy": risks.accuracy, "worst 10 %": risks.by_group_size[0.1].worst}
        for figure, value in held.items():
            assert values.loc[name, figure] == pytest.approx(value, rel=1e-9)
    assert table[table.model == "fair"].difference.isna().all()
    against = table[table.model == "plain"].set_index("figure")
    for figure, row in against.iterrows():
        assert row.difference == pytest.approx(values.loc["plain", figure] - values.loc["fair", figure], abs=1e-9)
        assert row.low <= row.difference <= row.high
    words = repr(found)
    assert words.splitlines()[0].split()[:3] == ["model", "everybody", "accuracy"]
    html = found._repr_html_()
    assert f"{against.value['accuracy']:.3f} [{against.low['accuracy']:+.3f}" in html
    assert "<svg" in html


def test_outcomes_are_tables_and_pictures(fair: SimulatedFederation, plain: SimulatedFederation) -> None:
    table = fair.to_frame()
    test = fair.result.test
    assert test is not None
    row = table[(table.split == "test") & (table.group_size == 0.1)].iloc[0]
    assert (row.records, row["mean"], row.worst) == (test.n, test.mean, test.worst_risk(0.1))
    assert set(table.split) == {"train", "test"}
    axes = Figure().subplots()
    assert fair.compare(name="fair", plain=plain).plot(axes) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()][:2] == ["fair", "plain"]
    sizes, risks = fair.plot(Figure().subplots()).get_lines()[0].get_data()
    assert risks[list(sizes).index(0.1)] == test.worst_risk(0.1)
    html = fair._repr_html_()
    assert "<svg" in html
    assert fair.result.verdict is not None
    assert fair.result.verdict.sentences[0] in html


def test_what_cannot_be_compared_is_refused(fair: SimulatedFederation) -> None:
    with pytest.raises(DataError, match="there is no other model"):
        fair.compare()
    with pytest.raises(DataError, match="two models are called 'this'"):
        fair.compare(this=fair)
    with pytest.raises(DataError, match="was judged on 114 other records than this, which was judged on 171"):
        fair.compare(other=outcome_of(task={"test_fraction": 0.2}))


def test_a_bar_is_drawn_on_a_terminal_and_nothing_warns_in_a_notebook_without_its_widgets() -> None:
    # Rich warns where a notebook has no widgets, and warnings fail a test.
    for console, drawn in ((Console(force_terminal=True), True), (Console(force_jupyter=True), False)):
        with console.capture() as shown, rounds_bar(3, 0.1, console):
            pass
        assert ("rounds" in shown.get()) is drawn
