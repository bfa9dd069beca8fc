"""The page of a run: what it says, what it does with old results, and with hostile ones."""

import json
import re
from typing import Any

import pytest

from fedfair.errors import DataError
from fedfair.report import sentences
from fedfair.report.run_page import run_page
from fedfair.results.document import ResultDocument
from fedfair.results.reading import parse_result
from tests.result_files import complete, oldest

pytestmark = pytest.mark.usefixtures("undrawn")

HOSTILE = "</p></title><script>alert('x')</script><img src=x onerror=alert(1)>{{ 7*7 }}"


def read(result: dict[str, Any]) -> ResultDocument:
    return parse_result(json.dumps(result), "result.json")


def text_of(page: str) -> str:
    """Return what is read on a page, without its pictures."""
    bare = re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return " ".join(bare.replace("&#39;", "'").split())


def ids(page: str) -> set[str]:
    return set(re.findall(r'<(?:section|svg)[^>]*? id="([^"]+)"', page))


@pytest.mark.parametrize(
    ("worst", "said"),
    [(0.5, "fell from 0.900 before training to 0.500"), (0.95, "rose from"), (0.9, "stayed at 0.900")],
)
def test_a_change_for_the_worse_or_none_is_said_as_it_is(worst: float, said: str) -> None:
    (reported,) = sentences.labelled({"a": read(complete(worst=worst))})
    assert said in sentences.headline(reported, ())


def test_the_page_says_what_happened_to_the_worst_off_and_who_is_served() -> None:
    page = text_of(run_page({"a": read(complete("fedavg", 0.6)), "b": read(complete(worst=0.5))}))
    assert (
        "In the worst-off tenth of the people, whoever they are, the mean loss fell from 0.900 before training to "
        "0.500 (a: 0.600)." in page
    )
    assert "100 people the model was trained on the mean loss is 0.200 (a: 0.200), and 90.0% of" in page
    page = text_of(run_page({"result.json": read(complete(worst=0.9))}))
    assert re.search(
        r"This model serves the worst \d+ % no better than guessing; from \d+ % on it certainly does\.",
        page.replace("\N{NO-BREAK SPACE}", " "),
    )


def test_everything_that_a_deployed_run_records_is_on_its_page() -> None:
    page = run_page({"result.json": read(complete())})
    assert {"summary", "groups", "training", "plan", "privacy", "cost", "limits", "files"} <= ids(page)
    assert {"group-sizes", "risk", "threshold", "seconds"} <= ids(page)
    shown = text_of(page)
    assert "'heart' of a, b, c" in shown
    assert "An aggregator that may do anything learns one sum." in shown
    assert "half took at most 12 ms, nine in ten at most 500 ms, the longest 2 min 10 s" in shown
    assert "received 25 bytes and sent 33.3 kB" in shown
    assert "the aggregator sent 1.5 kB and received 2 MB" in shown
    assert "carries no differential privacy" in shown
    assert "not recorded" not in shown


@pytest.mark.usefixtures("drawn")
def test_a_single_run_shows_what_its_models_on_the_way_traded_between_all_records_and_the_worst_off() -> None:
    result = complete()
    page = run_page({"result.json": read(result)})
    assert {"trade-off", "on-the-way"} <= ids(page)
    picture = page[page.index('<svg id="on-the-way"') :]
    # At 100 % the worst group is all records: nothing to trade.
    assert [
        size for size in ("10", "30", "100") if f"worst {size}" in picture.replace("\N{NO-BREAK SPACE}", " ")
    ] == ["10", "30"]
    assert "Another tradeoff between the two takes another run." in text_of(page)
    result["history"] = result["history"][:1]
    assert "trade-off" not in ids(run_page({"result.json": read(result)}))


def scored(*classes: int, auc: float | None = 0.75) -> dict[str, Any]:
    """Return a result with figures about the scores of these classes; about too few people without an AUC."""
    rows = [
        {"records": 50, "mean_score": 0.25, "observed": 0.5},
        {"records": 50, "mean_score": 0.75, "observed": 1.0},
    ]
    told = {
        "auc": auc, "auc_bound": None if auc is None else [auc - 0.01, auc + 0.01],
        "brier": None if auc is None else 0.125, "calibration_error": None if auc is None else 0.25,
    }  # fmt: skip
    each = told | {"reliability": [] if auc is None else rows}
    result = complete()
    result["train"]["scores"] = told | {"by_class": {str(number): each for number in classes}}
    return result


def test_ranking_and_calibration_stand_where_people_are_enough() -> None:
    page = run_page({"result.json": read(scored(1))})
    assert {"scores", "calibration"} <= ids(page)
    assert "FedSRCVaR: class 1 0.750 0.7400 to 0.7600 0.1250 0.2500" in text_of(page)
    assert "all classes" not in text_of(page)
    several = text_of(run_page({"a": read(scored(0, 1, 2)), "b": read(complete("fedavg"))}))
    assert "a: all classes 0.750 0.7400 to 0.7600 0.1250 0.2500" in several
    page = run_page({"result.json": read(scored(1, auc=None))})
    assert "FedSRCVaR: class 1 too few people - - -" in text_of(page)
    assert "scores" in ids(page)
    assert "calibration" not in ids(page)
    assert "scores" not in ids(run_page({"result.json": read(complete())}))


def test_an_interval_of_the_excess_is_one_figure_beside_those_of_each_label() -> None:
    result = complete()
    result["train"]["metrics"] = {"worst_group_excess": 0.125, "worst_group_excess_bound": [0.0625, 0.25],
                                  "label_auc": [0.5, 0.75, 0.875]}  # fmt: skip
    page = text_of(run_page({"result.json": read(result)}))
    assert "worst group excess bound 0.0625 to 0.25" in page
    assert "number label auc 1 0.500 2 0.750 3 0.875" in page


def test_what_older_results_lack_is_said_to_be_not_recorded() -> None:
    page = run_page({"result.json": read(oldest())})
    shown = text_of(page)
    for what in ("The plan in words", "Secure aggregation", "The seconds of each round", "Bytes"):
        assert f"{what}: not recorded" in shown
    assert "the mean loss is 0.500." in shown  # which group size an old history speaks of is not known
    assert "The curve before training was not recorded." in shown
    assert {"group-sizes", "risk", "threshold"} <= ids(page)
    bare = {name: value for name, value in oldest().items() if name not in {"history", "timing", "versions"}}
    shown = text_of(run_page({"result.json": read(bare)}))
    assert "The evaluations on the way: not recorded" in shown
    assert "Time: not recorded" in shown


@pytest.mark.parametrize(
    ("places", "labels", "names"),
    [
        (("out/result.json",), (), ["FedSRCVaR"]),
        (("out/result.json",), ("ours",), ["ours"]),
        (("x/fair.json", "x/plain.json"), (), ["fair.json", "plain.json"]),
        (("fair/result.json", "plain/result.json"), (), ["fair/result.json", "plain/result.json"]),
        (("a/x/r.json", "b/x/r.json", "r.json"), (), ["a/x/r.json", "b/x/r.json", "r.json"]),
        (("a.json", "b.json"), ("with protection", "without"), ["with protection", "without"]),
    ],
)
def test_results_are_named_or_by_files(places: tuple[str, ...], labels: tuple[str, ...], names: list[str]) -> None:
    documents = {place: read(complete()) for place in places}
    assert [each.label for each in sentences.labelled(documents, labels)] == names


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        (("one",), "--label names 1 of 2 results"), (("one", "two", "three"), "--label names 3 of 2 results"),
        (("one", "one"), "--label 'one' names two results"), (("one", " "), "--label is empty"),
    ],
)  # fmt: skip
def test_labels_that_do_not_tell_results_apart_are_refused(labels: tuple[str, ...], fault: str) -> None:
    with pytest.raises(DataError, match=re.escape(fault)):
        sentences.labelled({"a": read(complete()), "b": read(complete())}, labels)


@pytest.mark.usefixtures("drawn")
def test_a_trade_off_has_a_numbered_point_and_a_row_for_each_result() -> None:
    results = {
        f"{number}": read(complete(worst=0.5 + number / 10, mean=0.2 - number / 100)) for number in range(3)
    }
    page = run_page(results)
    assert "trade-off" in ids(page)
    picture = page[page.index('<svg id="trade-off"') :]
    picture = picture[: picture.index("</svg>")]
    for number, row in enumerate(("0.200 0.500", "0.190 0.600", "0.180 0.700"), start=1):
        assert re.search(rf"<text[^>]*>{number}</text>", picture)
        assert re.search(rf"{number}\. {number - 1} FedSRCVaR, worst 10.%, tradeoff 1.% {row}", text_of(page))


SUPPRESSED = {"worst": None, "best": None, "disparity": None, "bound": None}


def test_groups_of_too_few_people_and_figures_under_noise() -> None:
    result = complete()
    result["train"]["by_group_size"]["0.1"] = SUPPRESSED
    page = run_page({"a": read(result)})
    assert "10 % too few people - - -" in text_of(page).replace("\N{NO-BREAK SPACE}", " ")
    assert "In the worst-off 30" in text_of(page)
    for size in result["train"]["by_group_size"]:
        result["train"]["by_group_size"][size] = SUPPRESSED
    shown = text_of(run_page({"a": read(result), "b": read(result | {"algorithm": "fedavg"})}))
    assert "the mean loss is not told, because they are too few people" in shown
    result = complete()
    for group in result["train"]["by_group_size"].values():
        group["bound"] = None
    shown = text_of(run_page({"a": read(result)})).replace("\N{NO-BREAK SPACE}", " ")
    assert "estimate" in shown
    assert "too few people" not in shown
    document = read(complete(size=0.3))
    past = document.past(document.history[0])
    assert past is not None
    assert document.past_worst(past, 0.1) == 0.9  # of its curve, not `worst`, which is about 0.3
    assert document.past_worst(past, 0.2) is None


@pytest.mark.parametrize("noised", [True, False])
def test_an_interval_is_said_to_be_proven_only_where_there_is_one(noised: bool) -> None:
    promise = {"sample_level": {"statement": "noise"} if noised else None, "collaborator_level": None}
    shown = text_of(run_page({"a": read(complete() | {"setting": "deployment", "privacy": promise})}))
    assert ("proven to hold the truth" in shown) == (not noised)
    assert ("they are estimates. No interval around them is proven" in shown) == noised


def test_who_left_or_stopped_or_saw_sums_in_the_clear_is_told() -> None:
    gone = {"collaborator": "clinic-a", "round": 6, "reason": "its budget is used up"}
    shown = text_of(run_page({"a": read(complete() | {"left": [gone]})}))
    assert "clinic-a left after round 6: its budget is used up" in shown
    assert "left after round" not in text_of(run_page({"a": read(complete())}))
    page = text_of(run_page({"a": read(complete() | {"state": "stopped", "outcome": "stopped by signal"})}))
    assert page.index("THE RUN WAS STOPPED: stopped by signal") < page.index("In the worst-off")
    plain = {"mode": "off", "colluders": 0, "masked": False, "guarantee": "NONE: the aggregator sees every update"}
    page = text_of(run_page({"a": read(complete() | {"secure_aggregation": plain})}))
    assert "WARNING: sums were not masked. NONE: the aggregator sees every update." in page
    page = text_of(run_page({"a": read(complete() | {"setting": "simulation"})}))
    assert "This was a simulation" in page
    assert "Seconds of a simulation are those of one machine" in page


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("fedsrcvar", "In each round FedSRCVaR must reveal the sum of the weighted changes of model and"),
        ("afl", "must reveal the loss of every collaborator, and the weighted sum of their gradients. It runs in"),
    ],
)
def test_what_an_algorithm_must_reveal_is_said(algorithm: str, said: str) -> None:
    page = text_of(run_page({"a": read(complete(algorithm))}))
    assert said in page
    assert ("simulation only" in page) == (algorithm == "afl")


@pytest.mark.usefixtures("drawn")
def test_nothing_that_people_wrote_becomes_part_of_the_page() -> None:
    def poisoned(value: Any) -> Any:  # noqa: ANN401 - JSON has every type
        if isinstance(value, dict):
            return {name: poisoned(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [poisoned(inner) for inner in value]
        return HOSTILE if isinstance(value, str) else value

    kept = {"format": "fedfair/result/1", "setting": "deployment"}
    result = poisoned(complete()) | kept | {"versions": {HOSTILE: HOSTILE}, "privacy": {HOSTILE: HOSTILE}}
    result["left"] = [{"collaborator": HOSTILE, "round": 1, "reason": HOSTILE}]
    result["traffic"]["basis"] = "measured"
    for others in ({}, {"x": read(complete())}):
        page = run_page({HOSTILE: read(result), **others}, labels=(HOSTILE, "x") if others else ())
        assert not re.search("<(script|img)", page)
        assert page.count("<title>") == 1
        assert "{{ 7*7 }}" in text_of(page)  # no template ran inside a name
        assert page.count("&lt;script&gt;") >= 10


def test_other_people_are_not_compared_and_privacy_is_in_its_own_words() -> None:
    other = complete("fedavg")
    other["train"]["n"] = 99
    assert "cannot be compared" in text_of(run_page({"a": read(complete()), "b": read(other)}))
    assert "cannot be compared" not in text_of(run_page({"a": read(complete()), "b": read(complete("fedavg"))}))
    promise = {"sample_level": {"statement": "(epsilon=3, delta=1e-5) DP"}, "collaborator_level": None}
    page = text_of(run_page({"a": read(complete() | {"privacy": promise})}))
    assert "Differential privacy for each record: (epsilon=3, delta=1e-5) DP" in page
    assert "carries no differential privacy" not in page
    assert run_page({"a": read(complete())}) == run_page({"a": read(complete())})


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0005, "0.5 ms"), (0.9, "900 ms"), (1.0, "1 s"), (61.0, "1 min 1 s"), (7322.0, "2 h 2 min")],
)
def test_times_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert sentences.duration(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (999.6, "1 kB"), (1_500_000, "1.5 MB"), (2e13, "20 TB")],
)
def test_bytes_are_said_in_decimal_units(count: float, said: str) -> None:
    assert sentences.byte_count(count) == said


@pytest.mark.parametrize("size", ["0", "1.5", "x", "nan"])
def test_a_group_size_that_is_no_share_is_refused(size: str) -> None:
    result = complete()
    result["train"]["by_group_size"][size] = result["train"]["by_group_size"]["0.1"]
    with pytest.raises(Exception, match="by_group_size"):
        read(result)
