"""The demonstration as one HTML page: self-contained, no script, no network, readable on a phone.

Every number comes from `Facts`, every picture from `Vectors`; this module only lays them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from fedfair.report.html import PageSection, page
from secagg_demo.digits import CLASSES, class_pictures
from secagg_demo.pictures import bars, mosaic, people
from secagg_demo.story import (
    BYTE_VALUES,
    NOISE_MEAN,
    NOISE_SPREAD,
    SHOWN_NUMBER,
    VICTIM,
    Facts,
    Lie,
    Noise,
    Sent,
    Sum,
    Vectors,
)
from secagg_demo.words import error_sentence, explanation, sum_sentence, summarised

CEILING = 6.0
"""Bars of a histogram are cut off at this multiple of what noise would give."""

STYLE = """
:root{--up:#b3261e;--down:#1f5fbf;--good:#1b7340}
@media(prefers-color-scheme:dark){:root{--up:#ff7a6e;--down:#6da8ff;--good:#62d394}}
svg[preserveAspectRatio]{height:6rem}
.paper{fill:var(--card)}.up{fill:var(--up)}.down{fill:var(--down)}.bar{fill:var(--down)}
.line{stroke:var(--up);stroke-width:1;fill:none;vector-effect:non-scaling-stroke}
.here{fill:var(--good)}.gone{fill:none;stroke:var(--soft);stroke-width:2}.cross{stroke:var(--up);stroke-width:3}
.name{font-size:11px;text-anchor:middle;fill:var(--ink)}
.refused{color:var(--good);font-weight:600}.people svg{max-width:24rem}
.pair,.three{display:grid;gap:0 1.2rem}
@media(min-width:38rem){.pair{grid-template-columns:1fr 1fr}.three{grid-template-columns:1fr 1fr 1fr}}
"""


def demo_page(facts: Facts, vectors: Vectors) -> str:
    """Return the whole page."""
    sections = (
        _section("", _opening(facts)),
        _section("1. What each clinic sends", _what_travels(facts)),
        _section("2. What the aggregator holds", _what_is_held(facts, vectors)),
        _section("3. The sum, and only the sum", _sum_section(facts)),
        _section("4. A clinic vanishes", _drop_outs(facts)),
        _section("5. The aggregator lies", "".join(_lie(lie, facts) for lie in facts.lies)),
    )
    return page("Five clinics add up, and nobody sees a part", sections, STYLE)


def _section(heading: str, body: str) -> PageSection:
    return PageSection("", heading, Markup(body))  # noqa: S704 - the functions below escape whatever is not their own


def _opening(facts: Facts) -> str:
    images = ", ".join(map(str, facts.images))
    return (
        f"<p>{len(facts.clinics)} clinics with {images} images learn together to read digits: a model of "
        f"{facts.parameters} numbers. What follows happened in {facts.seconds:.1f} seconds on this machine, "
        "with the programs that clinics run; every figure was computed in that run.</p>"
        f'<p class="card"><b>What is promised.</b> {escape(_capitalised(facts.guarantee))}.</p>'
    )


def _what_travels(facts: Facts) -> str:
    more = facts.protected_bytes / facts.plain_bytes
    return (
        "<p>First a fresh public key, signed with the key that all the others have pinned. Then, in every round, "
        "its update under masks, and at the end shares of masks.</p>"
        + _table(
            ("clinic", "key", "upload", "answer", f"numbers {SHOWN_NUMBER}, {SHOWN_NUMBER + 1} as sent"), facts
        )
        + f'<p class="soft">Without masks the 8 bytes of {facts.clinics[VICTIM - 1]} would have been '
        f"<code>{facts.before_masking}</code>. A round costs a clinic {facts.protected_bytes} bytes instead of "
        f"{facts.plain_bytes} ({more:.1f} times); what is added does not grow with the model.</p>"
    )


def _table(titles: Sequence[str], facts: Facts) -> str:
    def row(key: Sent, upload: Sent, answer: Sent) -> str:
        return (
            f"<tr><td>{key.clinic}</td><td>{key.bytes} B</td><td>{upload.bytes} B</td><td>{answer.bytes} B</td>"
            f"<td><code>{upload.some_bytes}</code></td></tr>"
        )

    rows = "".join(map(row, facts.keys, facts.uploads, facts.answers))
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _what_is_held(facts: Facts, vectors: Vectors) -> str:
    victim = facts.clinics[VICTIM - 1]
    shown = (
        ("without-masks", vectors.encoded, f"The update of {victim} without masks: the digits 0 to 9 show."),
        ("as-sent", vectors.masked, f"The same update as {victim} sent it: all that the aggregator holds."),
        ("recovered", vectors.recovered, "The sum over all clinics, as the aggregator recovered it."),
    )
    drawn = "".join(
        f'<figure id="{name}">{mosaic(class_pictures(vector), text)}<figcaption>{text}</figcaption></figure>'
        for name, vector, text in shown
    )
    return (
        f"<p>One tile for each of the {CLASSES} digits, one square for each pixel: red pushes towards the digit, "
        f'blue away from it.</p><div class="three">{drawn}</div>'
        f'<div class="pair">{_histogram(facts.without_masks, "Bytes without masks")}'
        f"{_histogram(facts.masked, 'Bytes as sent')}</div>"
        f'<p class="soft">How often each of the {BYTE_VALUES} byte values occurs; the red line is what noise '
        f"gives on average, bars are cut off at {CEILING:.0f} times that. Pure noise has a chi-squared of "
        f"{NOISE_MEAN} give or take {NOISE_SPREAD:.0f}; as many fresh random bytes had "
        f"{facts.fresh_noise.chi_squared:.0f}.</p>"
    )


def _histogram(noise: Noise, title: str) -> str:
    expected = sum(noise.counts) / BYTE_VALUES
    caption = f"{title}: chi-squared {noise.chi_squared:,.0f}"
    return (
        f'<figure class="histogram">{bars(noise.counts, CEILING * expected, expected, caption)}'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _sum_section(facts: Facts) -> str:
    return (
        f"<p>The aggregator recovers {sum_sentence(facts.everybody)}. Held against the plain sum, which nobody "
        f"but this page ever saw: {error_sentence(facts.everybody)}.</p>"
    )


def _drop_outs(facts: Facts) -> str:
    lost = facts.lost_clinic
    return (
        _drop_out(f"{lost} vanishes before its upload arrives", facts.lost_before_upload, lost, facts)
        + "<p>The others handed over their masks with the lost clinic, and voted on who is left, signed.</p>"
        + _drop_out(f"{lost} vanishes right after its upload", facts.lost_after_upload, lost, facts)
        + f"<p>Its update is in the sum: any {facts.threshold} clinics can open it.</p>"
    )


def _drop_out(title: str, found: Sum, lost: str, facts: Facts) -> str:
    return (
        f'<figure class="card people">{people(facts.clinics, (lost,), title)}<figcaption><b>{title}.</b> The '
        f"aggregator recovers {sum_sentence(found)}; {error_sentence(found)}.</figcaption></figure>"
    )


def _lie(lie: Lie, facts: Facts) -> str:
    said = "".join(
        f"<p>Asked to {escape(refusal.asked)}: <span class=refused>refused</span> by {clinics}, check "
        f"<code>{refusal.check}</code>. <q>{escape(refusal.words)}</q></p>"
        for clinics, refusal in summarised(lie.refusals)
    )
    return f'<div class="card lie"><b>{escape(lie.title)}.</b><p>{escape(explanation(lie, facts))}</p>{said}</div>'


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
