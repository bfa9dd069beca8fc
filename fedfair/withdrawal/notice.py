"""A site's signed word to the lead: in which runs records counted that have been withdrawn since.

    {"day": "2030-01-31", "federation": "heart", "format": "fedfair/withdrawal-notice/1",
     "participant": "clinic-b", "runs": [["<run>", "sha256:...", "counted", "<later run>", ["sha256:..."]]],
     "signature": "<base64>"}

It names runs and plans, and neither how many persons nor whose records: `counted` says that records counted in the
run, `begins` that it begins with the model of such a run too. Then comes a later run of the same plan at
this site without these records, where there is one. The signature is Ed25519 by the key that the roster pins, over
the label and all fields. The file has one spelling, as an approval has.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import ApprovalError
from fedfair.file_formats import REMEDY, other_version
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/withdrawal-notice/1"
MAX_BYTES = 1 << 20
COUNTED, BEGINS = "counted", "begins"

_DAY, _RUN = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"[\w.:-]{1,80}", re.ASCII)
_AGAIN = "ask the site to make it again with `fedfair data withdrawal-notice`"


@dataclass(frozen=True, slots=True)
class AffectedRun:
    """One run with records that have been withdrawn since.

    Attributes:
        run: its id.
        plan: digest of its plan.
        how: `COUNTED`, or `BEGINS` where it begins with the model of such a run.
        superseded_by: id of the last run of the same plan at this site, if these records are not in it.
        models: digests of the weights that this site keeps of it.
    """

    run: str
    plan: str
    how: str = COUNTED
    superseded_by: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WithdrawalNotice:
    """What a site says; no runs where nothing of what was withdrawn counted.

    Attributes:
        federation: of the runs.
        participant: the site.
        day: when it says so, YYYY-MM-DD.
        runs: with records that have been withdrawn since, the oldest first.
    """

    federation: str
    participant: str
    day: str
    runs: tuple[AffectedRun, ...]

    def signed(self, key: Ed25519PrivateKey) -> bytes:
        """Return the file of this notice, signed with the site's own key."""
        return _file(self, key.sign(_message(self)))

    def about(self, weights: str, plans: Sequence[str]) -> AffectedRun | None:
        """Return what it says about a model; None where nothing.

        Args:
            weights: digest of the model's weights, by which a run that was superseded is told from the later one.
            plans: digests of its plan and of those whose runs that plan continues.
        """
        return next(
            (
                each
                for each in self.runs
                if weights in each.models or (each.plan in plans and not each.superseded_by)
            ),
            None,
        )


def verified_notice(
    raw: bytes, federation: str, roster: Mapping[str, Ed25519PublicKey], place: str
) -> WithdrawalNotice:
    """Return a notice after checking its signature with the key that the plan pins for the site.

    Args:
        raw: the file, from anybody.
        federation: of the plan.
        roster: the key of each site of the plan, by its name.
        place: the file's name, for messages.

    Raises:
        ApprovalError: it is malformed, of another federation or of a stranger, or its signature does not verify.
    """
    notice, signature = _parse(raw, place)
    if notice.federation != federation:
        raise ApprovalError(f"{place} is for federation {notice.federation!r}, not for {federation!r}", _AGAIN)
    key = roster.get(notice.participant)
    if key is None:
        raise ApprovalError(
            f"{place} is of {notice.participant!r}, for which the plan pins no key", "give the notice of a site"
        )
    try:
        key.verify(signature, _message(notice))
    except InvalidSignature as error:
        raise ApprovalError(
            f"{place} was not signed with the key that the plan pins for {notice.participant}", _AGAIN
        ) from error
    return notice


def stated_notice(raw: bytes, place: str) -> WithdrawalNotice:
    """Return what a notice says, of whose signature nothing is known yet; arguments and faults as above."""
    return _parse(raw, place)[0]


def withdrawal_sentences(
    notices: Iterable[WithdrawalNotice], weights: str, plans: Sequence[str]
) -> tuple[str, ...]:
    """Return one sentence for each site that says something about a model; arguments as of `about`."""
    found = (
        f"{notice.participant}: records that counted in this model were withdrawn, as said on {notice.day}"
        + (f"; superseded by run {said.superseded_by}" if said.superseded_by else "")
        for notice in notices
        if (said := notice.about(weights, plans)) is not None
    )
    return tuple(found) or ("no withdrawal of records that counted in this model is reported",)


def _parse(raw: bytes, place: str) -> tuple[WithdrawalNotice, bytes]:
    if fault := other_version(raw, FORMAT, place):
        raise ApprovalError(fault, REMEDY)
    try:
        fields = json.loads(raw[:MAX_BYTES].decode("ascii"))
        runs = tuple(_run(*one) for one in fields["runs"])
        notice = WithdrawalNotice(fields["federation"], fields["participant"], fields["day"], runs)
        signature = base64.b64decode(fields["signature"], validate=True)
        texts = (notice.federation, notice.participant, notice.day)
        # One spelling of exactly these fields: nothing of the file is outside of what is signed.
        sound = all(map(_RUN.fullmatch, texts)) and _DAY.fullmatch(notice.day) and _file(notice, signature) == raw
    except (ValueError, TypeError, KeyError, RecursionError):
        sound = False
    if not sound:
        raise ApprovalError(f"{place} is no notice of a withdrawal", _AGAIN)
    return notice, signature


def _run(run: str, plan: str, how: str, superseded_by: str, models: list[str]) -> AffectedRun:
    named = [run, plan, *models, *filter(None, (superseded_by,))]
    if how not in (COUNTED, BEGINS) or not all(_RUN.fullmatch(each) for each in named):
        raise ValueError("no run")
    return AffectedRun(run, plan, how, superseded_by, tuple(models))


def _message(notice: WithdrawalNotice) -> bytes:
    fields = [notice.federation, notice.participant, notice.day]
    for one in notice.runs:
        fields += [one.run, one.plan, one.how, one.superseded_by, str(len(one.models)), *one.models]
    return labelled_message("fedfair/withdrawal-notice/v1", [field.encode() for field in fields])


def _file(notice: WithdrawalNotice, signature: bytes) -> bytes:
    fields = {
        "day": notice.day,
        "federation": notice.federation,
        "format": FORMAT,
        "participant": notice.participant,
        "runs": [[one.run, one.plan, one.how, one.superseded_by, one.models] for one in notice.runs],
        "signature": base64.b64encode(signature).decode("ascii"),
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
