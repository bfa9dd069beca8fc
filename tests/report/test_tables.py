"""What the tables say, read as text."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from fedfair.errors import DataError
from fedfair.report.tables import by_group_size, comparison
from fedfair.results.document import ResultDocument
from fedfair.results.reading import parse_result, read_result


def document(algorithm: str = "fedavg", worst: float = 0.5, upper: float = 0.5, test: object = None) -> str:
    risk = {
        "n": 100,
        "mean": 0.2,
        "accuracy": 0.9,
        "by_group_size": {
            "0.1": {"worst": worst, "best": 0.1, "disparity": worst - 0.1, "bound": [worst, upper]},
            "1.0": {"worst": 0.2, "best": None, "disparity": None, "bound": [0.2, 0.2]},
        },
    }
    return json.dumps(
        {
            "format": "fedfair/result/1", "plan_digest": "sha256:" + "0" * 64, "algorithm": algorithm,
            "rounds": 10, "threshold": 0.3, "uniform_floor": 0.6931, "train": risk, "test": test,
        }
    )  # fmt: skip


def shown(table: Table) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def result(algorithm: str = "fedavg", worst: float = 0.5, upper: float = 0.5) -> ResultDocument:
    return parse_result(document(algorithm, worst, upper), "here")


def test_comparisons_have_a_row_for_each_result_with_dashes_and_intervals() -> None:
    text = shown(comparison({"FedAvg": result(), "FedSRCVaR": result(worst=0.4)}, [0.1]))
    rows = [line for line in text.splitlines() if "0.200" in line or "uniform" in line]
    assert ["FedAvg" in rows[0], "0.500" in rows[0], "0.400" in rows[0]] == [True, True, True]
    assert "FedSRCVaR" in rows[1]
    assert "0.300" in rows[1]  # its disparity
    assert rows[2].count("0.693") == 2
    assert " - " in shown(comparison({"fair.json": result()}, [0.3]))
    text = shown(by_group_size(result(upper=0.51)))
    assert "0.5000 to 0.5100" in text
    assert "exact" in text
    noised = json.loads(document())
    noised["train"]["by_group_size"]["0.1"]["bound"] = None
    text = shown(by_group_size(parse_result(json.dumps(noised), "here")))
    line = next(line for line in text.splitlines() if "10 %" in line)
    assert "0.5000" in line
    assert "estimate" in line
    assert next(line for line in shown(by_group_size(result())).splitlines() if "100 %" in line).count("-") == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is not a result file"), ("[]", "is not a result file"), ("{}", "format"),
        (document().replace("fedfair/result/1", "fedfair/result/9"), "the format fedfair/result/9"),
        (document().replace('"mean": 0.2', '"mean": "x"'), "train.mean"),
    ],
)  # fmt: skip
def test_another_file_is_refused_with_the_place_of_the_fault(text: str, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        parse_result(text, "out.json")


def test_a_missing_result_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no result file") as caught:
        read_result(tmp_path / "result.json")
    assert "simulate" in caught.value.remedy
