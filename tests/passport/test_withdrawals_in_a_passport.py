"""A passport says which sites' records were withdrawn from its model, by notices that only they can sign."""

from pathlib import Path

import pytest

from fedfair.errors import PassportError
from fedfair.identity.store import load_signing_key
from fedfair.passport.document import parse_passport
from fedfair.plan.digest import format_digest
from fedfair.run.initial_model import vector_digest
from fedfair.run.saved_model import read_saved
from fedfair.withdrawal.notice import AffectedRun, WithdrawalNotice
from tests.passport.conftest import command

PLAN = "sha256:" + "0" * 64


def told(study: Path, signer: str, *runs: AffectedRun) -> tuple[str, ...]:
    """Return what a passport with a notice of clinic-b says of withdrawals."""
    notice = WithdrawalNotice("heart", "clinic-b", "2030-01-31", runs)
    place = study / "clinic-b.withdrawal.json"
    place.write_bytes(notice.signed(load_signing_key(study / "cert", signer)))
    command("passport", "create", "--output", "again")
    command("passport", "verify", "again")
    passport = parse_passport((study / "again/passport.json").read_bytes(), "again")
    return next(one.sentences for one in passport.statements if one.id == "#withdrawals")


def test_a_passport_names_the_site_whose_records_were_withdrawn(study: Path) -> None:
    given = "Notices were given by clinic-b on 2030-01-31."
    weights = format_digest(
        vector_digest(read_saved(study / "passport/evidence/model.safetensors").saved.model.vector)
    )
    affected = AffectedRun("run-1", PLAN, superseded_by="run-2", models=(weights,))
    said = "clinic-b: records that counted in this model were withdrawn, as said on 2030-01-31"
    assert told(study, "clinic-b", affected) == (f"{said}; superseded by run run-2.", given)
    nothing = "no withdrawal of records that counted in this model is reported."
    assert told(study, "clinic-b") == (nothing, given)
    with pytest.raises(PassportError, match="not signed with the key that the plan pins for clinic-b"):
        told(study, "clinic-a", affected)
