"""Takes the archive of a proposed study into the inbox: fetched, unpacked, held against the act that names it.

An archive is unpacked only if it holds nothing but a workspace. Its plan must be the one that the act names, by
the digest that follows from plan, code and first weights, and this site must be one of its collaborators. No code
of the plan runs here.
"""

from __future__ import annotations

from fedfair.consent.inbox import StudyFolder
from fedfair.consortium.acts import Act
from fedfair.errors import FedfairError, PlanError, RemoteProtocolError, StateError
from fedfair.plan.deployment import check_deployment
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.run.initial_model import read_initial_model
from fedfair.store.atomic_file import replace_file
from fedfair.store.disk import writing
from fedfair.wire.hub_client import HubClient
from fedfair.workspace.archive import unpack

_MIB = 1 << 20


class UnfitStudyError(PlanError):
    """This site cannot take a study, whatever its people say: it is not what its act says, or not for it."""


async def fetch_study(client: HubClient, act: Act, raw: bytes, folder: StudyFolder, most_mib: float) -> None:
    """Fetch the archive of a submitted study, from where an earlier try has left it.

    Args:
        client: of the hub.
        act: that submitted the study.
        raw: its signed bytes, which are kept as `proposal.json`.
        folder: of the study; made if there is none.
        most_mib: the largest archive that this site takes, in MiB.

    Raises:
        UnfitStudyError: it is larger than this site takes, or its bytes are others than the act names.
        UnreachableError: the hub does not answer; what has arrived is kept.
        FedfairError: the hub refuses, or a file cannot be written.
    """
    if act.archive_bytes > most_mib * _MIB:
        raise UnfitStudyError(
            f"its archive has {act.archive_bytes / _MIB:.1f} MiB; this site takes {most_mib:g}",
            "raise disk.archive_mib of site.yaml, if you agree",
        )
    with writing(folder.archive):
        folder.path.mkdir(parents=True, exist_ok=True)
        replace_file(folder.proposal, [raw])
        if folder.archive.exists():
            return
        try:
            await client.fetch(act.archive_digest, act.archive_bytes, folder.archive)
        except RemoteProtocolError as fault:
            raise UnfitStudyError(fault.message, fault.remedy) from fault


def unpack_study(act: Act, folder: StudyFolder, site: str) -> None:
    """Unpack a fetched archive, and check that it is the study that the act names, and for this site.

    Args:
        act: that submitted the study.
        folder: of the study, with its archive.
        site: this site's name.

    Raises:
        UnfitStudyError: the archive is unsound, of another plan, or of a plan without this site.
        StateError: a file cannot be read or written, such as on a full disk; that says nothing of the study.
    """
    try:
        if not folder.plan.exists():
            unpack(folder.archive.read_bytes(), folder.workspace)
        plan = load_plan(folder.plan)
        check_deployment(plan)
        found = read_initial_model(folder.plan, plan).plan_digest
    except FedfairError as fault:
        kind = StateError if isinstance(fault.__cause__, OSError) else UnfitStudyError
        raise kind(fault.message, fault.remedy) from fault
    except OSError as fault:
        raise StateError(f"{folder.archive} cannot be read: {fault.strerror}", "make room on the disk") from fault
    if found != act.plan_digest:
        raise UnfitStudyError(
            f"its archive holds the plan {format_digest(found)}; {act.by} has submitted "
            f"{format_digest(act.plan_digest)}",
            "ask who submitted it",
        )
    sites = plan.federation.collaborators
    if site not in sites or tuple(sites) != act.sites or plan.federation.name != act.federation:
        raise UnfitStudyError(
            f"its plan is of {plan.federation.name} and names {', '.join(sites)}; the act is of {act.federation} "
            f"and names {', '.join(act.sites)}; this site is {site}",
            "ask who submitted it",
        )
