"""How the worst-off fare: by size, named by nobody, and by the columns, as far as slices were looked for."""

from __future__ import annotations

from fedfair.passport.document import Figure
from fedfair.passport.evidence import EVALUATION, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.passport.statements.accuracy import check_sums
from fedfair.plan.description import percent
from fedfair.report.tables import SPLIT_WORDS
from fedfair.results.loss_text import loss_text
from fedfair.results.slices import TOLD, slice_words


def _made(evidence: ModelEvidence) -> Said:
    check_sums(evidence)
    result = evidence.result
    split, risk = result.shown
    sizes = sorted((float(size), group) for size, group in risk.by_group_size.items() if group.worst is not None)
    slices = None if result.slices is None or result.slices.given_up else result.slices
    worst = () if slices is None else slices.slices[:TOLD]
    rows = [(percent(size), group) for size, group in sizes]
    figures: dict[str, Figure] = {f"worst {size:g}": group.worst for size, group in sizes}
    figures |= {f"slice: {slice_words(one.cells)}": one.mean for one in worst}
    return Said(
        told(
            "groups",
            whom=SPLIT_WORDS[split],
            rows=rows,
            slices=slices,
            worst=worst,
            slice_words=slice_words,
            loss=loss_text,
            untold=len(risk.by_group_size) - len(sizes),
        ),
        figures,
    )


ROOM = StatementRoom("groups", "How the worst-off fare", (RESULT, EVALUATION), _made)
