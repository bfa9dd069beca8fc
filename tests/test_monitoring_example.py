"""The dashboard and the alert rules: every metric exists with its labels, and Prometheus takes the rules."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fedfair.watching.metrics import COUNTERS, DERIVED, GAUGES
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

FOLDER = REPOSITORY / "examples" / "monitoring"
RULES, DASHBOARD, SCRAPES = FOLDER / "alerts.yaml", FOLDER / "grafana.json", FOLDER / "prometheus.yaml"
KNOWN = {f"fedfair_{name}_total": set(kind.labels) for name, kind in (COUNTERS | DERIVED).items()}
KNOWN |= {f"fedfair_{name}": set(kind.labels) for name, kind in GAUGES.items()}
OF_PROMETHEUS = {"instance", "job"}


def rule_expressions() -> list[str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def dashboard_expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [variable["query"] for variable in dashboard["templating"]["list"]]
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]] + queries


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every metric of ours in an expression with the labels that it is selected by."""
    for name, selector in re.findall(r"\b(fedfair_\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]", selector))


@pytest.mark.parametrize("expressions", [rule_expressions, dashboard_expressions])
def test_every_metric_that_is_named_exists_and_has_the_labels(expressions: object) -> None:
    assert callable(expressions)
    found = list(itertools.chain.from_iterable(map(used, expressions())))
    assert len(found) >= 8
    for name, labels in found:
        assert name in KNOWN, name
        assert labels <= KNOWN[name] | OF_PROMETHEUS, (name, labels)


def test_labels_by_which_is_summed_are_those_of_the_metric() -> None:
    for expression in rule_expressions() + dashboard_expressions():
        grouped = re.match(r"sum by \(([\w, ]+)\)", expression)
        if grouped is not None:
            [name] = {metric for metric, _ in used(expression)}
            assert set(grouped[1].split(", ")) <= KNOWN[name] | OF_PROMETHEUS, expression


def test_panels_do_not_overlap_and_have_their_own_numbers() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (column, row)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(column for column, _ in taken) < 24


@pytest.mark.parametrize(("what", "path"), [("rules", RULES), ("config", SCRAPES)])
def test_promtool_takes_the_files(what: str, path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine; `make promtool` installs Debian's package prometheus")
    ran = subprocess.run(
        [program, "check", what, path.name],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_rules_fire_on_what_they_are_for(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine; `make promtool` installs Debian's package prometheus")
    aggregator = '{instance="a:9464", job="fedfair"}'
    away = '{instance="a:9464", job="fedfair", site="clinic-b"}'
    series = [
        {"series": f"fedfair_site_connected{away}", "values": "1x5 0x60"},
        {"series": f"fedfair_last_round_timestamp_seconds{aggregator}", "values": "0x120"},
        {"series": 'fedfair_run_state{instance="a:9464", job="fedfair", state="running"}', "values": "1x120"},
        {"series": f"fedfair_certificate_expiry_timestamp_seconds{aggregator}", "values": f"{86400 * 7}x120"},
    ]
    expected = {
        "FedfairSiteAway": ("30m", True),
        "FedfairNoRound": ("90m", True),
        "FedfairCertificateEndsSoon": ("90m", True),
        "FedfairCertificateEndsNow": ("90m", False),
        "FedfairSumsLost": ("90m", False),
    }
    rules = {
        rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    }
    count = [
        {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)', "eval_time": at,
         "exp_samples": [{"labels": "{}", "value": int(fires)}]}
        for name, (at, fires) in expected.items()
    ]  # fmt: skip
    assert expected.keys() <= rules.keys()
    tests = tmp_path / "tests.yaml"
    tests.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": "1m",
                "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": count}],
            }
        ),
        encoding="utf-8",
    )
    ran = subprocess.run(
        [program, "test", "rules", str(tests)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
