"""What made the model: the versions that the run recorded, and a bill of materials that lists them."""

from __future__ import annotations

from fedfair.errors import PassportError
from fedfair.passport.evidence import RESULT, SOFTWARE, ModelEvidence
from fedfair.passport.software_bill import parse_bill
from fedfair.passport.statement import Said, StatementRoom, told


def _made(evidence: ModelEvidence) -> Said:
    place = evidence.of(SOFTWARE)[0]
    listed, used = parse_bill(place.content(), place.file), evidence.result.versions
    for name, version in used.items():
        if name in listed and listed[name] != version.partition("+")[0]:
            raise PassportError(
                f"{place.file} lists {name} {listed[name]}, the run used {version}",
                "give the bill of the software that ran, with --software",
            )
    return Said(
        told("software", used=sorted(used.items()), listed=len(listed)), {"components": len(listed), **used}
    )


ROOM = StatementRoom("software", "What made it", (SOFTWARE, RESULT), _made)
