"""The metrics: an allowed list, nothing of one site's or one record's loss, and the conventions of Prometheus."""

import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedfair.watching.document import status_document
from fedfair.watching.metrics import COUNTERS, DERIVED, GAUGES, metrics_text
from fedfair.watching.page import status_page
from fedfair.watching.run_status import (
    IDLE,
    PooledEvaluation,
    PooledFigures,
    RunStatus,
    SumStep,
    answered,
    attended,
    counted,
    evaluated,
    left_behind,
    noted,
    round_ended,
    stepped,
)
from tests.patience import PATIENCE
from tests.watching.statuses import NOON, START

HOSTILE = 'clinic"\n}\\<script>'

ALLOWED = {
    # counters, each a sum of figures in result.json, or a count of notes
    "fedfair_rounds_total": set(),
    "fedfair_sums_total": {"purpose"},
    "fedfair_sum_seconds_total": {"purpose"},
    "fedfair_lost_sums_total": {"purpose"},
    "fedfair_unawaited_answers_total": {"purpose"},
    "fedfair_left_behind_answers_total": {"site"},
    "fedfair_refusals_total": {"kind"},
    "fedfair_received_bytes_total": {"purpose"},
    "fedfair_sent_bytes_total": {"purpose"},
    "fedfair_phase_seconds_total": {"purpose", "phase"},
    "fedfair_site_awaited_seconds_total": {"site", "phase"},
    "fedfair_notices_total": {"event"},
    # the run
    "fedfair_run_info": {"role", "name", "federation", "run_id", "version", "loss_unit"},
    "fedfair_run_state": {"state"},
    "fedfair_planned_rounds": set(),
    "fedfair_planned_sites": set(),
    "fedfair_connected_sites": set(),
    "fedfair_awaited_sites": set(),
    "fedfair_site_connected": {"site"},
    "fedfair_site_answer_seconds": {"site"},
    "fedfair_median_answer_seconds": set(),
    "fedfair_site_left_behind": {"site"},
    "fedfair_awaited_deadline_timestamp_seconds": set(),
    "fedfair_last_round_timestamp_seconds": set(),
    "fedfair_certificate_expiry_timestamp_seconds": set(),
    "fedfair_process_start_timestamp_seconds": set(),
    # figures over all sites together, as in result.json
    "fedfair_loss": {"split", "group"},
    "fedfair_accuracy_ratio": {"split"},
}
"""Every series that may ever be served, with its labels. Of one site, only waiting and connections are told."""


def full_status() -> RunStatus:
    """Return a status in which everything has happened."""
    ends = NOON + timedelta(days=30)
    status = replace(START, sites=("clinic-a", HOSTILE), run_id="ab" * 16, certificate_ends=ends)
    status = attended(stepped(status, IDLE, NOON), ("clinic-a",), (HOSTILE,), NOON)
    until = NOON + timedelta(minutes=1)
    status = stepped(status, SumStep("training", 1, 1, "uploads", until), NOON + timedelta(seconds=1))
    for counter, kind in COUNTERS.items():
        if counter != "phase_seconds":
            status = counted(status, counter, *("x" for _ in kind.labels), by=2.5)
    for number in range(3):
        figures = {"train": PooledFigures(0.5 / (number + 1), 0.75, 0.9), "test": PooledFigures(0.6, 0.8, 0.85)}
        status = evaluated(status, PooledEvaluation(number, figures))
        status = round_ended(status, number, NOON + timedelta(seconds=number))
    status = answered(left_behind(status, HOSTILE, NOON), {"clinic-a": 0.25, HOSTILE: 9.0}, 0.5, [HOSTILE])
    return noted(status, f"{HOSTILE} connected", NOON)


def series(status: RunStatus, now: datetime = NOON + timedelta(seconds=5)) -> dict[str, list[dict[str, str]]]:
    """Return the labels of every line, by the name of the series."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(metrics_text(status, now).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_nothing_is_served_but_what_is_on_the_list() -> None:
    found = series(full_status())
    assert {name: set(labels[0]) for name, labels in found.items()} == ALLOWED
    named = {f"fedfair_{name}_total": set(kind.labels) for name, kind in (COUNTERS | DERIVED).items()}
    named |= {f"fedfair_{name}": set(kind.labels) for name, kind in GAUGES.items()}
    assert named == ALLOWED


def test_no_figure_of_learning_is_told_of_one_site_or_one_record() -> None:
    by_site = {name for name, labels in ALLOWED.items() if labels & {"site", "record", "sample", "name"}}
    assert by_site == {
        "fedfair_run_info", "fedfair_site_connected", "fedfair_site_awaited_seconds_total",
        "fedfair_site_answer_seconds", "fedfair_site_left_behind", "fedfair_left_behind_answers_total",
    }  # fmt: skip
    losses = series(full_status())["fedfair_loss"]
    assert {tuple(sorted(labels.items())) for labels in losses} == {
        (("group", group), ("split", split)) for group in ("everybody", "worst") for split in ("train", "test")
    }


def test_no_document_tells_a_sites_loss() -> None:
    document = status_document(full_status(), NOON)
    for site in document["sites"].values():
        assert set(site) == {
            "connected", "awaited_since", "awaited_seconds", "withdrew",
            "answer_seconds", "left_behind", "left_behind_since",
        }  # fmt: skip
    assert set(document["evaluation"]["splits"]["train"]) == {"mean", "worst", "accuracy"}


def test_values_are_those_of_the_status() -> None:
    text = metrics_text(full_status(), NOON + timedelta(seconds=5)).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["fedfair_rounds_total"]) == 2
    assert float(lines['fedfair_phase_seconds_total{phase="uploads",purpose="training"}']) == 4
    assert float(lines['fedfair_loss{group="worst",split="test"}']) == 0.8
    assert float(lines['fedfair_site_answer_seconds{site="clinic-a"}']) == 0.25
    assert float(lines['fedfair_site_left_behind{site="clinic-a"}']) == 0
    assert float(lines["fedfair_median_answer_seconds"]) == 0.5
    assert float(lines["fedfair_certificate_expiry_timestamp_seconds"]) == (NOON + timedelta(days=30)).timestamp()


def test_a_counter_never_falls_while_it_is_read() -> None:
    status = full_status()
    readings = [_counters(status, NOON + timedelta(seconds=second)) for second in (2, 3, 9)]
    later = stepped(status, IDLE, NOON + timedelta(seconds=9))
    readings.append(_counters(later, NOON + timedelta(seconds=12)))
    for earlier, after in itertools.pairwise(readings):
        assert all(after[name] >= value for name, value in earlier.items())


def _counters(status: RunStatus, now: datetime) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in metrics_text(status, now).decode().splitlines())
    return {line[0]: float(line[1]) for line in lines if "_total" in line[0] and not line[0].startswith("#")}


def test_at_the_beginning_what_is_not_known_has_no_line() -> None:
    start = replace(START, sites=("clinic-a",))
    assert "fedfair_last_round_timestamp_seconds" not in series(start)
    assert "fedfair_loss" not in series(start)


def test_names_have_base_units_and_helps() -> None:
    for name, kind in (COUNTERS | GAUGES | DERIVED).items():
        assert re.fullmatch(r"[a-z_]+", name), name
        assert not re.search(r"(millis|_ms|minutes|hours|days|percent|kilo|mega|_total)", name), name
        assert kind.help.endswith("."), name


def test_promtool_finds_nothing_to_say() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine; `make promtool` installs Debian's package prometheus")
    text = metrics_text(full_status(), NOON).decode()
    ran = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_hostile_name_stays_a_name() -> None:
    status = full_status()
    assert {labels["site"] for labels in series(status)["fedfair_site_connected"]} == {"clinic-a", HOSTILE}
    page = status_page(status, NOON).decode()
    assert page.count("<script>") == 1
    assert json.loads(json.dumps(status_document(status, NOON)))["notes"][0]["words"] == f"{HOSTILE} connected"
