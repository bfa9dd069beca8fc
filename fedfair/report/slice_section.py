"""The section of a run's page about slices: who is served worst, and what is not known of it.

Decides sentences and the table; figures and names are `results.slices`'s.
"""

from __future__ import annotations

from markupsafe import Markup

from fedfair.report.blocks import bullets, paragraph, table
from fedfair.results.loss_text import loss_text
from fedfair.results.slices import SliceFigures, figures_of, is_higher, slice_words

TITLE = "Who is served worst"

_RECORDS = {"test": "held-out test", "validation": "validation", "train": "training"}
_NOT_KNOWN = (
    "A slice of other columns, of three columns at once, or of fewer people may lie higher.",
    "Why a slice lies high is not known: few records, other measurements or an outcome that nobody can foretell.",
)


def slice_parts(fields: SliceFigures) -> Markup:
    """Return what a page says about slices."""
    if fields.given_up is not None:
        return paragraph(f"No slices are told of: {fields.given_up}.")
    about = _RECORDS.get(fields.split, fields.split)
    higher, everybody = [one for one in fields.slices if is_higher(one, fields)], loss_text(fields.mean)
    words = (
        f"The {fields.n} {about} records were cut into {fields.looked_at} slices by {', '.join(fields.columns)}. "
        f"Each interval holds the true mean {fields.measure} with about 95 % for all slices together. No "
        f"{fields.measure} counts for more than {loss_text(fields.counted_up_to)}."
    )
    if fields.split == "train":
        words += " The model was trained on these very records, so that it may serve others worse."
    lead = (
        f"Served worst: {slice_words(higher[0].cells)}, {figures_of(higher[0], fields)}. Everybody: {everybody}."
        if higher
        else f"No slice lies above everybody ({fields.measure} {everybody}) beyond doubt."
    )
    rows = [
        (
            slice_words(one.cells),
            str(one.n),
            loss_text(one.mean, beside=fields.mean),
            " to ".join(loss_text(end, beside=fields.mean) for end in one.interval),
            "yes" if is_higher(one, fields) else "not sure",
        )
        for one in fields.slices
    ]
    headings = ("slice", "people", f"mean {fields.measure}", "interval", "above everybody")
    caption = f"The slices that lie highest, by the lower ends of their intervals. Everybody: {everybody}."
    left = [f"Nothing could be asked of {', '.join(fields.untold)} without telling of few people."]
    unknown = bullets([*_NOT_KNOWN, *(left if fields.untold else ())])
    return paragraph(lead, "lead") + paragraph(words) + table(caption, headings, rows) + unknown
