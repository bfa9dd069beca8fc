"""What could be had without a model: the base rate and plain training, wherever a result is shown."""

import pytest
from rich.console import Console

from fedfair.report.baseline_lines import baseline_lines
from fedfair.report.baseline_section import IS_PLAIN, NO_PLAIN
from fedfair.report.board_summary import board_summary
from fedfair.report.run_page import run_page
from fedfair.report.shown import shown
from fedfair.report.tables import by_group_size
from fedfair.results.baselines import base_rate
from fedfair.results.document import ResultDocument, to_json
from fedfair.results.verdict import RunVerdict
from fedfair.simulation.beside import with_plain
from tests.report.test_board_summary import LANGUAGES, words_of
from tests.report.test_run_page import ids, read, text_of
from tests.result_files import complete, groups
from tests.simulation.test_beside import beside

pytestmark = pytest.mark.usefixtures("undrawn")

PEOPLE = ((60, 5), (10, 25))
RATE = (
    "a mean loss of 0.647, in the worst 10 % of 1.050; to name the most frequent class for all is right for 65.0%."
)


def counted(algorithm: str = "fedsrcvar", **changes: object) -> ResultDocument:
    """Return a result about 100 people whose classes are counted."""
    result = complete(algorithm)
    result["train"] |= {"confusion": PEOPLE, "accuracy": 0.85} | changes
    return read(result)


def plain(document: ResultDocument, worst: float | None = 0.8, mean: float = 0.15) -> ResultDocument:
    """Return a result with plain training beside it."""
    figures = groups(worst or 1.0, mean)
    if worst is None:
        figures["0.1"] = dict.fromkeys(figures["0.1"])
    risk = read(complete() | {"train": complete()["train"] | {"by_group_size": figures, "mean": mean}}).trained
    people = risk.model_copy(update={"confusion": ((62, 3), (20, 15)), "accuracy": 0.77})
    return with_plain(document, beside(document, risk=people))


def section(*documents: ResultDocument) -> str:
    page = run_page({f"{place}.json": each for place, each in enumerate(documents)})
    assert "baselines" in ids(page)
    part = page[page.index('<section id="baselines"') :].partition("</section>")[0]
    return text_of(part).replace("\N{NO-BREAK SPACE}", " ")


def printed(document: ResultDocument) -> str:
    console = Console(width=400, record=True)
    with console.capture() as captured:
        console.print(by_group_size(document))
    return " ".join(captured.get().split())


def test_the_base_rate_stands_beside_a_model_in_the_terminal_and_on_the_page() -> None:
    rate = base_rate(counted().trained, 0.1)
    assert rate is not None
    assert (rate.accuracy, round(rate.mean, 3), round(rate.worst, 3)) == (0.65, 0.647, 1.05)
    assert baseline_lines(counted()) == (f"To predict the base rate for each of the training records has {RATE}",)
    assert RATE in printed(counted())
    told = section(counted())
    # Of class 1 are 35 of 100: who names class 0 for all misses them.
    assert "model everybody worst 10 % accuracy missed false alarms" in told
    assert "FedSRCVaR 0.200 0.500 85.0% 10 5 base rate 0.647 1.050 65.0% 35 0 uniform guess 0.693 0.693" in told
    assert NO_PLAIN in told
    # Most are of class 1: who names that for all alarms the others.
    assert "0 40 uniform guess" in section(counted(confusion=((35, 5), (5, 55))))


def test_results_without_counted_classes_have_no_base_rate() -> None:
    bare = read(complete())
    assert baseline_lines(bare) == ()
    told = section(bare)
    assert "base rate" not in told
    assert "missed" not in told
    assert "FedSRCVaR 0.200 0.500 90.0% uniform guess 0.693 0.693 -" in told
    three = counted(confusion=((30, 5, 5), (5, 20, 5), (5, 5, 20)))
    assert "base rate 1.089 1.204 40.0% uniform guess" in section(three)
    nobody = counted(confusion=((0, 0), (0, 0))).trained
    assert base_rate(nobody, 0.1) is None


def test_plain_training_at_equal_effort_is_compared_everywhere() -> None:
    document = plain(counted())
    lines = baseline_lines(document)
    trained, beside_it = lines[1:]
    assert trained == (
        "Plain training at equal effort (FedAvg, 20 rounds) has a mean loss of 0.150, in the worst 10 % of 0.800, "
        "and is right for 77.0%."
    )
    differs = "the mean loss of this model is 0.050 higher, and that of its worst 10 % 0.300 lower."
    assert beside_it == f"Beside plain training, {differs}"
    for line in lines:
        assert line in printed(document)
    told = section(document)
    assert "FedSRCVaR 0.200 0.500 85.0% 10 5 plain training 0.150 0.800 77.0% 20 3 base rate" in told
    assert f"Beside plain training (FedAvg, 20 rounds), {differs}" in told
    assert NO_PLAIN not in told
    assert shown(document)["baselines"] == to_json(document)["baselines"]
    same = baseline_lines(plain(counted(), 0.5, 0.2))[-1]
    assert same.endswith("the mean loss of this model is the same, and that of its worst 10 % the same.")
    few = baseline_lines(plain(counted(), None))[-1]
    assert few.endswith("the mean loss of this model is 0.050 higher.")


def test_plain_training_of_other_records_is_not_compared() -> None:
    document = plain(counted())
    held = document.baselines
    assert held is not None
    others = held.model_copy(update={"plain": held.plain.model_copy(update={"split": "test"})})
    assert len(baseline_lines(document.model_copy(update={"baselines": others}))) == 1


def test_another_result_by_plain_training_of_the_same_people_stands_beside() -> None:
    told = section(counted(), counted("fedavg", mean=0.3))
    assert "0.json 0.200 0.500 85.0% 10 5 1.json 0.300 0.500 85.0% 10 5 base rate" in told
    assert "Beside plain training (FedAvg, 20 rounds), the mean loss of this model is 0.100 lower" in told
    assert NO_PLAIN in section(counted(), counted("fedavg", n=99))
    assert NO_PLAIN in section(counted(), counted("afl"))
    assert IS_PLAIN in section(counted("fedavg"))
    # What was trained beside the model counts before any other result.
    assert "plain training 0.150" in section(plain(counted()), counted("fedavg"))


def test_a_board_reads_of_both_in_its_language() -> None:
    said = {
        "en": ("right for 65 % of people; the model is right for 85 %", "up to 0.80.", "IT SERVES"),
        "de": ("bei 65 % der Menschen richtig; das Modell hat bei 85 % recht", "bis zu 0,80.", "ES DIENT"),
        "fr": ("pour 65 % des personnes ; le modèle l'est pour 85 %", "jusqu'à 0,80.", "IL SERT MIEUX"),
    }
    for language in LANGUAGES:
        rate, usual, better = said[language]
        words = " ".join(words_of(board_summary(plain(counted()), "r", language)).split())
        assert rate in words
        assert usual in words
        assert better not in words
        alone = words_of(board_summary(counted(), "r", language))
        assert usual not in " ".join(alone.split())
        lost = " ".join(words_of(board_summary(plain(counted(), 0.4), "r", language)).split())
        assert better in lost


def test_a_board_is_not_told_that_nothing_is_better_where_plain_training_is() -> None:
    fine = RunVerdict(state="fine", findings=(), better_than_guess_from=None, sentences=("in words",))
    for worst, told in ((0.8, True), (0.4, False), (0.4995, True)):
        document = plain(counted(), worst).model_copy(update={"verdict": fine})
        assert ("No comparison finds the model worse" in words_of(board_summary(document, "r"))) == told
