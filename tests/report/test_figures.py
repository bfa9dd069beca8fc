"""Pictures: the right places, the same bytes, and nothing that a label could break."""

import itertools
import math
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from fedfair.report import figures
from fedfair.report.figures import DASHES, MARKERS, Chart, ChartAxis, Level, Series, draw, group_size_chart
from fedfair.report.svg import INK, PALETTE, SOFT, palette_css, standalone
from tests.patience import PATIENCE

HOSTILE = '<script>alert(1)</script>"&$x$\N{RIGHT-TO-LEFT OVERRIDE}\x00\n_'


def chart(
    *series: Series, x: ChartAxis | None = None, y: ChartAxis | None = None, levels: tuple[Level, ...] = ()
) -> Chart:
    return Chart(x or ChartAxis("round"), y or ChartAxis("loss (nats)"), series, levels)


def picture(*panels: Chart, name: str = "one") -> Markup:
    return draw(panels, name, "a title", "a description")


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(drawn)  # noqa: S314 - we drew it


def marks(drawn: Markup) -> list[tuple[float, float]]:
    """Return where the marks of the first series are; they share a clip path, ticks and legend have none."""
    root = parsed(drawn)
    groups = [group for group in root.iter("g") if group.get("clip-path") and group.find("use") is not None]
    return [(float(use.get("x", "")), float(use.get("y", ""))) for use in groups[0].iter("use")]


def gaps(places: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(places)]


def test_axes_are_equal_in_steps_or_factors_and_zeros_turn_them_linear() -> None:
    across, down = zip(*marks(picture(chart(Series("a", (0, 1, 2, 3), (0.0, 0.5, 1.0, 1.5))))), strict=True)
    # Places are written with 6 decimals.
    assert gaps(list(across)) == pytest.approx([across[1] - across[0]] * 3, abs=1e-5)
    assert gaps(list(down)) == pytest.approx([down[1] - down[0]] * 3, abs=1e-5)
    assert across[1] > across[0]
    assert down[1] < down[0]
    drawn = picture(chart(Series("a", (1, 10, 100), (1, 2, 3)), x=ChartAxis("collaborators", log=True)))
    across = [place[0] for place in marks(drawn)]
    assert gaps(across) == pytest.approx([across[1] - across[0]] * 2, abs=1e-5)
    drawn = picture(chart(Series("a", (0, 1, 2), (1, 2, 3)), x=ChartAxis("round", log=True)))
    assert len(marks(drawn)) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308])
def test_what_cannot_be_drawn_is_left_out_and_the_rest_stays(value: float) -> None:
    drawn = picture(chart(Series("a", (0, 1, 2), (1.0, value, 2.0), low=(0, value, 1), high=(2, value, 3))))
    assert len(marks(drawn)) == 2


@pytest.mark.parametrize("series", [(), (Series("a", (), ()),), (Series("a", (0,), (0.0,)),)])
def test_no_point_or_one_is_no_fault(series: tuple[Series, ...]) -> None:
    assert picture(chart(*series)).startswith("<svg")


def test_the_same_chart_has_the_same_bytes_in_another_process() -> None:
    made = "group_size_chart([Series('a', (.1, .5), (2., 1.), (1., .5), (3., 2.))], [Level('b', .7)])"
    code = (
        f"from fedfair.report.figures import *\nc = {made}\nprint(draw([c, c], 'n', 't', 'd', columns=2), end='')"
    )
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE, env=environment
    ).stdout
    panel = group_size_chart([Series("a", (0.1, 0.5), (2.0, 1.0), (1.0, 0.5), (3.0, 2.0))], [Level("b", 0.7)])
    assert told == draw([panel, panel], "n", "t", "d", columns=2)
    assert "<metadata" not in told


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.1."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("paper", "dark"), [("#ffffff", False), ("#12171d", True)])
def test_every_colour_stands_out_from_its_page(paper: str, dark: bool) -> None:
    shown = {name: other if dark else colour for colour, (name, other) in PALETTE.items()}
    # WCAG 2.1 asks for 4.5 in text and 3 in parts of pictures.
    assert min(contrast(shown[name], paper) for name in ("ink", "soft")) >= 4.5
    assert min(contrast(shown[name], paper) for name in shown if name.startswith("series")) >= 3.0
    assert (f"--page:{paper}" if dark else "--page:#fff") in palette_css()


@settings(max_examples=6, deadline=None)
@given(st.text(), st.text())
def test_any_words_make_a_picture_that_can_be_read_back(title: str, description: str) -> None:
    drawn = draw([chart(Series(title, (0, 1), (1, 2)))], "one", title, description)
    assert len(parsed(drawn).findall("title")) == 1


def test_words_are_text_and_ids_of_two_pictures_differ() -> None:
    drawn = picture(chart(Series(HOSTILE, (0, 1), (1, 2), notes=(HOSTILE, "")), levels=(Level(HOSTILE * 9, 1),)))
    assert "<script" not in drawn
    root = parsed(standalone(drawn).replace("<style>", "<s>").replace("</style>", "</s>"))
    text = "".join(root.itertext())
    assert "<script>alert(1)</script>" in text
    assert not re.search("[\N{RIGHT-TO-LEFT OVERRIDE}\x00]", text)
    panel = group_size_chart([Series("a", (0.1, 0.5), (2.0, 1.0), (1.0, 0.5), (3.0, 2.0))], [Level("b", 0.7)])
    both = picture(panel, name="left") + picture(panel, panel, name="right")
    ids = re.findall(r'\bid="([^"]*)"', both)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', both)) <= set(ids)
    assert set(" ".join(re.findall(r'aria-labelledby="([^"]*)"', both)).split()) <= set(ids)


def test_series_differ_by_more_than_colour_and_colours_are_variables() -> None:
    labels = [str(number) for number in range(308)]
    looks = list(figures._looks([chart(*(Series(label, (), ()) for label in labels))]).values())
    assert len(set(looks)) == 308
    shapes = [(look.marker, look.dashes) for look in looks]
    assert len(set(shapes[: len(MARKERS) * len(DASHES)])) == len(MARKERS) * len(DASHES)
    drawn = picture(
        chart(Series("a", (0, 1), (1, 2), (0, 1), (2, 3)), Series("b", (0, 1), (2, 1)), levels=(Level("c", 1),))
    )
    bare = re.sub(r"var\(--[a-z0-9-]+,#[0-9a-f]{6}\)", "", drawn)
    assert re.findall(r"#[0-9a-f]{6}\b", bare) == []
    assert {INK, SOFT} <= set(re.findall(r"#[0-9a-f]{6}\b", drawn))
    code = "import fedfair.report.figures, sys; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
