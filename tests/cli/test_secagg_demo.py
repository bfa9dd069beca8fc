"""`fedfair demo secagg`: what it says is so, and it says all of it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2
from typer.testing import CliRunner

from fedfair.cli.demo import app
from fedfair.errors import FedfairError, StoppedError
from fedfair.secagg.checks import Check
from fedfair.secagg.params import Mode, threshold
from secagg_demo import story as story_module
from secagg_demo.page import demo_page
from secagg_demo.story import CLIP, MAX_WEIGHT, NOISE_MEAN, Facts, Sum, Vectors, noise_of, play
from secagg_demo.words import histogram_lines, story_lines
from tests.conftest import REPOSITORY
from tests.fork_server import ENVIRONMENT, started
from tests.patience import PATIENCE

Played = tuple[Facts, Vectors]


@pytest.fixture(scope="module")
def played() -> Played:
    return play()


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, ["secagg", *words])
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.output


def test_sums_are_within_the_bound_with_and_without_a_clinic(played: Played) -> None:
    facts, _ = played
    for found in (facts.everybody, facts.lost_before_upload, facts.lost_after_upload):
        assert found.images[0] == found.images[1]
        assert 0.0 < found.greatest_error < found.proven_bound
        # n = 5 values share 31 bits: f = 28, and an error of one step C W 2^-f for each contributor.
        step = CLIP * MAX_WEIGHT * 2.0**-28
        assert found.proven_bound == pytest.approx(len(found.contributors) * step / found.images[0])
        # A header value is rounded to 2^-(60 - 17) = 2^-43 by each of at most 5 sites, and their plain sum in
        # float64 below 2^12 carries at most 5 roundings of 2^-41.
        assert found.mean_loss[0] == pytest.approx(found.mean_loss[1], abs=1e-11)

    def missing(found: Sum) -> set[str]:
        return set(facts.clinics) - set(found.contributors)

    assert missing(facts.everybody) == missing(facts.lost_after_upload) == set()
    assert missing(facts.lost_before_upload) == {facts.lost_clinic}
    assert facts.lost_after_upload.answers_used == facts.threshold == threshold(Mode.MALICIOUS, 5, 1)


def test_what_is_sent_looks_like_noise_by_a_distance_worked_out_by_hand(played: Played) -> None:
    facts, vectors = played
    # Noise is beyond this with probability 1e-12.
    limit = chi2.isf(1e-12, NOISE_MEAN)
    assert facts.masked.chi_squared < limit
    assert facts.fresh_noise.chi_squared < limit
    assert facts.without_masks.chi_squared > 10 * limit
    assert sum(facts.masked.counts) == 4 * facts.parameters
    # The very bytes that are printed are those of the vector that is drawn.
    number = story_module.SHOWN_NUMBER
    drawn = vectors.masked[number : number + 2].astype(np.int32).tobytes().hex(" ")
    assert drawn == facts.uploads[story_module.VICTIM - 1].some_bytes
    every_value_twice = bytes(range(256)) * 2
    assert noise_of(every_value_twice).chi_squared == 0.0
    # 256 times the same byte: (256 - 1)^2 / 1 + 255 * (0 - 1)^2 / 1.
    assert noise_of(bytes(256)).chi_squared == 255.0**2 + 255.0


class _Tags(HTMLParser):
    """Collects opening tags and their attributes, and checks that every element is closed."""

    VOID = frozenset({"meta", "rect", "path", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_story_and_the_page_tell_every_fact_and_refusal(played: Played) -> None:
    facts, _ = played
    told = "\n".join(story_lines(facts))
    for sent in (*facts.keys, *facts.uploads, *facts.answers):
        assert sent.some_bytes in told
    for lie in facts.lies:
        for refusal in lie.refusals:
            assert f"[bold]{refusal.check}[/]" in told
    assert f"{facts.everybody.proven_bound:.1e}" in told
    assert len(list(histogram_lines(facts.without_masks, facts.masked))) == 1 + 16
    text = demo_page(*played)
    tags = _Tags(text)
    assert tags.open == []
    pictures = [attributes["aria-label"] for tag, attributes in tags.found if tag == "svg"]
    assert len(pictures) == len(set(pictures)) == 7  # three updates, two histograms, two drop-outs
    assert {"without-masks", "as-sent", "recovered"} <= {attributes.get("id") for _, attributes in tags.found}
    assert sum(attributes.get("class") == "card lie" for _, attributes in tags.found) == 4
    assert any(attributes.get("name") == "viewport" for _, attributes in tags.found)
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|\bsrc=|\bhref=", text)
    assert len(text) < 100_000
    facts, _ = played
    fired = {lie.kind: {Check(refusal.check) for refusal in lie.refusals} for lie in facts.lies}
    assert fired == {
        "both shares": {Check.ONE_ANSWER}, "two sets": {Check.VOTES, Check.ONE_VOTE},
        "two models": {Check.STATE, Check.ENVELOPE}, "another sum": {Check.SUM},
    }  # fmt: skip
    heard = {refusal.clinic for lie in facts.lies for refusal in lie.refusals if lie.kind == "two sets"}
    assert heard == set(facts.clinics) - {facts.accomplice}


def test_the_example_tells_the_story_and_says_where_the_page_is(tmp_path: Path) -> None:
    script = REPOSITORY / "examples" / "secagg_demo"
    example = started([str(script)], tmp_path, {**ENVIRONMENT, "COLUMNS": "300"})
    told, _ = example.communicate(PATIENCE)
    assert example.returncode == 0, told
    assert "refused by clinic-1, clinic-3" in told
    assert str(tmp_path / "fedfair-secagg-demo.html") in told
    assert [path.name for path in tmp_path.iterdir()] == ["fedfair-secagg-demo.html"]


def test_json_and_one_page_are_all_and_only_its_own_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    facts = json.loads(run("--output", str(file), "--json"))
    assert facts["format"] == "fedfair/secagg-demo/1"
    assert facts["page"] == str(file)
    assert facts["everybody"]["greatest_error"] < facts["everybody"]["proven_bound"]
    assert facts["seconds"] < 10
    assert list(tmp_path.iterdir()) == [file]
    assert f"{facts['masked']['chi_squared']:.0f}" in file.read_text(encoding="utf-8")
    file = tmp_path / "page.html"
    run("--output", str(file))
    first = file.read_bytes()
    run("--output", str(file))
    assert file.read_bytes() != first  # fresh keys, fresh noise
    file.write_text("mine")
    with pytest.raises(FedfairError, match="is no page of fedfair's"):
        run("--output", str(file))
    assert file.read_text() == "mine"
    with pytest.raises(FedfairError, match="is a folder"):
        run("--output", str(tmp_path))


def test_missing_folders_and_interruptions_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_module, "play", lambda: pytest.fail("the story was played"))
    with pytest.raises(FedfairError, match=r"the folder .*nix does not exist") as caught:
        run("--output", str(tmp_path / "nix" / "x.html"))
    assert caught.value.remedy == "create it, or choose another place"
    assert list(tmp_path.iterdir()) == []

    def interrupted() -> Played:
        raise KeyboardInterrupt

    monkeypatch.setattr(story_module, "play", interrupted)
    with pytest.raises(StoppedError, match="nothing was written"):
        run("--output", str(tmp_path / "page.html"))
    assert list(tmp_path.iterdir()) == []
