"""Everything that must be right before a site connects: its files, its data, its policy and its approval.

The site's own digest of the plan, made from its own copy of plan, code and initial model, is what counts here: the
approval must be of that digest, and the aggregator must run that digest. Nothing is sent before all of it holds.
Each step is a function of its own, so that the preflight can take them one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from collaborator.computing.computation import Computation, KnownRecords
from collaborator.continued_run import begins_with_own_run
from collaborator.ledger import Ledger, RollbackGuard, total_of, witness_of
from collaborator.masking_policy import masking_policy
from collaborator.plan_code import PlanCode, plan_code, site_name
from collaborator.privacy_budget import Holder, PrivacyBudget, forecast
from collaborator.site_history import SiteHistory, history_file
from collaborator.withdrawn.run_lineage import RunLineage
from fedfair.aggregation.masked_encoding import opened_lengths, sum_shapes
from fedfair.aggregation.masking_terms import check_protection, roster_of, session_plan, suite_of
from fedfair.aggregation.spec import SumSpec
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import ApprovalError, LocalProtocolError, PlanError
from fedfair.identity.certificate import fingerprint
from fedfair.identity.files import permission_warning
from fedfair.identity.roster import bind_certificate, parse_roster
from fedfair.identity.store import SiteIdentity, check_pinned, load_site_identity
from fedfair.ids import FederationName, ParticipantId
from fedfair.news.event import News
from fedfair.plan import derived
from fedfair.plan.approval import verify_approval
from fedfair.plan.deployment import check_deployment
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import DEPRECATED_CODE, PolicyError, check_policy
from fedfair.policy.site_config import SiteConfig, load_site_config
from fedfair.policy.terms import AskedTerms
from fedfair.privacy.batch_parts import ALONE
from fedfair.privacy.entries import Origin
from fedfair.process.kept_memory import keep_freed_memory
from fedfair.process.open_files import MIN_OPEN_FILES, allow_open_files
from fedfair.run.opened_totals import MAX_WORDS_BYTES
from fedfair.run.packed_state import greatest_state_bytes
from fedfair.run.reference_file import own_references
from fedfair.secagg import session as secagg
from fedfair.secagg.keys import check_suite
from fedfair.statistics.table import Purpose
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.profile import DataProfile
from fedfair.tables.site_survey import SiteSurvey
from fedfair.tables.source import SiteRecords, read_site_records
from fedfair.training.across_devices import DeviceGroup, SiteProcesses, check_divisible, join_processes
from fedfair.training.assembly import flat_model
from fedfair.training.binding import PlanBinding, plan_binding
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device, set_threads
from fedfair.training.dp_sgd import site_protection
from fedfair.training.reference_records import check_records
from fedfair.training.site_task import SiteTask
from fedfair.version import __version__
from fedfair.wire.frames import Hello, Welcome
from fedfair.wire.limits import PROTOCOL_VERSION
from fedfair.wire.receiving import Shapes
from fedfair.withdrawal.owners import Names
from fedfair.withdrawal.tombstone_file import owner_column


@dataclass(frozen=True, slots=True)
class PreparedSite:
    """A site's configuration, read and fitting together.

    Attributes:
        plan: its copy of the plan.
        config: its `collaborator.yaml`.
        participant: its name.
        federation: the federation's name.
        workspace: the folder that the plan belongs to.
        code: the code that the plan names.
        approval_file: where its approval should be.
        state: the folder of what it must not forget between two starts.
        egress: the record of everything that it sends.
        ledger_file: where its releases are written down.
        history_file: where it remembers, over all plans, what it has helped to open.
        passphrase: of its encrypted keys; None where they are not encrypted.
        study: the name of the study, of several that this site takes part in; empty where it has one plan.
    """

    plan: Plan
    config: SiteConfig
    participant: ParticipantId
    federation: FederationName
    workspace: Path
    code: PlanCode
    approval_file: Path
    state: Path
    egress: Path
    ledger_file: Path
    history_file: Path
    passphrase: bytes | None = field(default=None, repr=False)
    study: str = ""

    @property
    def writer(self) -> str:
        """Return the name under which this site's egress record is continued: each study has one of its own."""
        return f"{self.participant}-{self.study}" if self.study else str(self.participant)

    @property
    def keeps_ledger(self) -> bool:
        """Return whether what this plan releases is written down.

        It is where the plan adds noise, and where this site has ever cared: what is released without noise spoils
        every later promise about the same records.
        """
        config = self.config
        wanted = derived.is_noised(self.plan) or config.policy.max_epsilon is not None
        begun = self.ledger_file.exists() or self.ledger_witness.path.exists()
        return wanted or config.budget is not None or config.ledger is not None or begun

    @property
    def cert_folder(self) -> Path:
        """Return the folder of its keys and certificates."""
        return Path(self.config.cert_folder)

    @property
    def runs(self) -> Path:
        """Return the folder of this site's own copies of runs, one folder for each run in it."""
        return self.state.parent / "runs" / self.participant

    @property
    def ledger_witness(self) -> RollbackGuard:
        """Return what remembers how far this site's ledger had come."""
        return witness_of(self.state, self.participant)

    def ledger(self) -> Ledger:
        """Return this site's ledger, which a start reads from its last total on.

        Raises:
            PrivacyError: it cannot be made, or is gone although this site has written to it.
        """
        return Ledger(self.ledger_file, self.ledger_witness, total_of(self.state, self.participant))

    @property
    def code_warnings(self) -> tuple[str, ...]:
        """Return what is to be said about the code that the policy lets run."""
        unnamed = self.plan.task.references and not self.config.policy.module_code
        return (DEPRECATED_CODE,) if unnamed else ()

    @property
    def secret_warnings(self) -> tuple[str, ...]:
        """Return a sentence for each file with a secret of this site's database that others may read."""
        sql = self.config.data.sql
        files = () if sql is None else [path for path in sql.secret_files if path.exists()]
        found = (permission_warning(path, "the secret of the database") for path in files)
        return tuple(warning for warning in found if warning is not None)

    def identity(self) -> SiteIdentity:
        """Return this site's keys and certificate; read again for each connection, so that a renewal is used.

        Raises:
            IdentityError: something is missing, malformed, expired or revoked, or the signing key is not the one
                that the plan pins.
        """
        identity = load_site_identity(self.cert_folder, self.participant, datetime.now(UTC), self.passphrase)
        pinned = parse_roster(self.plan.federation.roster).get(self.participant)
        if pinned is not None:
            check_pinned(identity, pinned)
        return identity


@dataclass(frozen=True, slots=True)
class Readiness:
    """Everything a site takes part with.

    `task` belongs to `computation`, which whoever ends this site closes. There is no privacy budget where it keeps
    no ledger, no group where it has one process, and no survey where the plan has none. `withheld` says which
    records do not take part (`fedfair.tables.source.with_enough`), `owners` whose each record is. `own_run` says
    whether the plan begins with what this site's own copy of a run ended with. It is found once, at the start:
    later its files may be those of another plan.
    """

    site: PreparedSite
    binding: PlanBinding
    approval: bytes
    shapes: Shapes
    specs: dict[Purpose, SumSpec]
    task: SiteTask
    computation: Computation
    account: PrivacyBudget | None
    profile: DataProfile
    group: DeviceGroup | None = None
    survey: SiteSurvey | None = None
    withheld: tuple[str, ...] = ()
    owners: Mapping[str, Names] = field(default_factory=dict, repr=False)
    own_run: bool = False


def keep_policy(site: PreparedSite, records: int | None = None) -> None:
    """Hold the plan against the site's policy, before anything is loaded, and again before anything is sent.

    A plan passes if a saved model of it may be evaluated: whether it is to be run is for the aggregator to say,
    and for `check_run` to check. No saved model of a plan that protects whole collaborators is ever evaluated.

    Args:
        site: what was read of it.
        records: how many it has, over all splits; None before they are loaded.

    Raises:
        PolicyError: the policy forbids the plan.
        FedfairError: the plan begins elsewhere than this site's own copy of the earlier run says.
    """
    evaluated = not derived.is_unevaluated(site.plan)
    asked = AskedTerms(site.plan, site.code.digest, evaluated, own_run=_own_run(site), records=records)
    check_policy(asked, site.config.policy, site.participant)


def _own_run(site: PreparedSite) -> bool:
    return begins_with_own_run(site.runs, site.state, site.participant, site.plan)


def history_of(site: PreparedSite, plan_digest: bytes, schema: FeatureSchema) -> SiteHistory:
    """Return what a site remembers over all plans, as its plan asks about it."""
    config = site.config
    records = config.data.name or ""
    return SiteHistory(site.history_file, site.plan, plan_digest, schema, config.policy, site.participant, records)


def keep_history(site: PreparedSite, binding: PlanBinding) -> None:
    """Hold what the plan sums before round 1 against what this site has helped to open under other plans.

    Raises:
        PolicyError: the policy forbids the plan.
        FedfairError: the history cannot be read.
    """
    broken = history_of(site, binding.digest, binding.schema).term()
    if broken is not None:
        raise PolicyError(site.participant, (broken,))


def find_site(
    name: str | None, config_file: Path, plan_file: Path, approval: Path | None, study: str = ""
) -> PreparedSite:
    """Read the plan and the site's configuration, whatever its policy says of the plan.

    Args:
        name: of the site; None for the one in its file.
        config_file: its `collaborator.yaml`.
        plan_file: the plan.
        approval: its approval; None for the place that its file or the usual one says.
        study: of a federation that stands, which has an egress record of its own; empty for none.

    Raises:
        FedfairError: a file is unreadable or wrong, or the names do not fit.
    """
    allow_open_files(MIN_OPEN_FILES, MIN_OPEN_FILES, "a collaborator")
    plan = load_plan(plan_file)
    check_deployment(plan)
    config = load_site_config(config_file)
    if study and "process" not in config.worker.model_fields_set:
        # What stands for months runs the code of many studies: never beside the keys, unless the site says so.
        config = config.model_copy(update={"worker": config.worker.model_copy(update={"process": True})})
    plan = plan if config.frozen is None else plan.with_frozen(Path(config.frozen))
    participant = site_name(plan, config, config_file, name)
    check_protection(plan)
    if derived.is_masked(plan):
        check_suite(suite_of(plan))
    workspace = workspace_of(plan_file)
    code = plan_code(plan.task.references, workspace, frozen=bool(config.policy.module_code))
    stated = approval or (None if config.approval is None else Path(config.approval))
    usual = config_file.parent / "egress" / f"{participant}.jsonl"
    record = usual if config.egress is None else Path(config.egress)
    if study:
        record = record.with_name(f"{record.stem}-{study}{record.suffix}")
    return PreparedSite(
        plan,
        config,
        participant,
        FederationName(plan.federation.name),
        workspace,
        code,
        stated or config_file.parent / "approvals" / f"{participant}.json",
        config_file.parent / "state",
        record,
        config_file.parent / "ledger.sqlite" if config.ledger is None else Path(config.ledger),
        history_file(config_file.parent, config, participant),
        study=study,
    )


def read_approval(site: PreparedSite, public_key: Ed25519PublicKey, plan_digest: bytes) -> bytes:
    """Return the site's approval after checking that it is of exactly this plan, signed with the site's key.

    Raises:
        ApprovalError: there is none, or it is of another plan; both digests are shown.
    """
    remedy = f"read the plan, then run `fedfair plan approve -n {site.participant}`, or `fedfair join`"
    try:
        approval = site.approval_file.read_bytes()
    except FileNotFoundError as error:
        raise ApprovalError(
            f"{site.approval_file}: {site.participant} has not approved the plan", remedy
        ) from error
    try:
        verify_approval(
            approval,
            plan_digest=plan_digest,
            federation=site.federation,
            participant=site.participant,
            public_key=public_key,
        )
    except ApprovalError as fault:
        raise ApprovalError(f"{site.approval_file}: {fault.message}", fault.remedy or remedy) from fault
    return approval


def read_records(site: PreparedSite, *, fewest: int | None = None, keep: Collection[str] = ()) -> SiteRecords:
    """Return the site's own records and their profile, which stays here.

    Args:
        site: what was read of it.
        fewest: with fewer records it has none; 0 where nothing leaves this site, None for its policy's number.
        keep: columns that are kept raw beside those that the plan keeps.

    Raises:
        DataError: they are missing, unreadable, or not what the plan declares.
        PlanError: they are others than those that trained the references that the plan takes.
    """
    found = read_site_records(
        site.plan,
        site.config,
        site.participant,
        site.workspace,
        code=site.code.folder,
        storage=FeatureStorage(site.state),
        fewest=site.config.policy.min_records if fewest is None else fewest,
        keep=keep,
    )
    named = derived.given_references(site.plan)
    kept = None if named is None or fewest is not None else own_references(site.runs, named)
    if kept is not None:
        check_records(kept, {site.participant: found.splits})
    return found


def holder_of(site: PreparedSite, plan_digest: bytes, records: int) -> Holder:
    """Return whose privacy budget the releases of so many training records under the plan count against."""
    digest = format_digest(plan_digest)
    origin = Origin(site.participant, site.federation, digest, site.config.data.name)
    return Holder(site.plan, site.config, origin, records)


def forecast_of(site: PreparedSite, plan_digest: bytes, records: int) -> tuple[str, ...]:
    """Return in words what the plan will cost so many training records and what that leaves; nothing is written.

    Raises:
        PrivacyError: the ledger cannot be read, or the site cannot afford to begin.
    """
    kept = site.ledger_file.exists() or site.ledger_witness.path.exists()
    entries = site.ledger().look() if kept else ()
    return forecast(holder_of(site, plan_digest, records), entries)


def open_account(site: PreparedSite, plan_digest: bytes, records: int) -> PrivacyBudget | None:
    """Return the privacy budget of so many training records under the plan; None where the site keeps no ledger.

    Raises:
        PrivacyError: the ledger cannot be used, or the site cannot afford to begin.
    """
    if not site.keeps_ledger:
        return None
    holder = holder_of(site, plan_digest, records)
    return PrivacyBudget(site.ledger(), holder, lambda: datetime.now(UTC))


def make_ready(site: PreparedSite, processes: SiteProcesses | None = None) -> Readiness:
    """Load everything that takes part; nothing is sent.

    Args:
        site: what was read of it.
        processes: those of this site, of which this is the first; None where it is the only one.

    Raises:
        FedfairError: something is missing or wrong.
    """
    with ExitStack() as opened:
        if owner_column(site.plan, site.config) is not None:
            RunLineage(site.config).make_key()
        computation = computation_of(site, processes)
        opened.callback(computation.close)
        binding = computation.binding()
        own_run = _own_run(site)
        keep_history(site, binding)
        if derived.is_masked(site.plan):
            keep_freed_memory(binding.vector.nbytes)
        approval = read_approval(site, site.identity().signing_key.public_key(), binding.digest)
        records = computation.records()
        keep_policy(site, records.held)
        RunLineage(site.config).check(site.plan)
        account = open_account(site, binding.digest, records.training)
        ready = assemble(site, binding, approval, records, account, computation)
        opened.pop_all()
    return replace(ready, own_run=own_run)


def assemble(
    site: PreparedSite,
    binding: PlanBinding,
    approval: bytes,
    records: KnownRecords,
    account: PrivacyBudget | None,
    computation: Computation,
) -> Readiness:
    """Return what takes part, made of what was loaded; no privacy budget where this site keeps none or checks.

    Raises:
        FedfairError: the device, the model and the records do not fit together, or do not fit the plan.
    """
    task, group = computation.task(binding, account)
    _check_weight(site, task)
    masked, layout = derived.is_masked(site.plan), task.layout
    specs = sum_specs(site.plan, layout, binding.schema)
    totals = 0 if masked else max(spec.upload_bytes for spec in specs.values()) + 2 * MAX_WORDS_BYTES
    opened = opened_lengths(site.plan, layout, binding.schema)
    shapes = Shapes(greatest_state_bytes(layout.dimension), totals, site.plan.training.rounds, opened)
    loaded = (account, records.profile, group, records.survey, records.withheld, records.owners)
    return Readiness(site, binding, approval, shapes, specs, task, computation, *loaded)


def computation_of(site: PreparedSite, processes: SiteProcesses | None = None) -> Computation:
    """Return what computes for a site; nothing of it is loaded or started yet. Whoever asks for it closes it.

    Args:
        site: what was read of it.
        processes: those of this site, of which this is the first; None where it is the only one.

    Raises:
        FedfairError: the site's file asks for what cannot be together.
    """
    if not site.config.worker.process:
        return _Here(site, processes)
    if processes is not None:
        raise PlanError(
            "worker.process: is true, and torchrun has started several processes of this site",
            "start one process, or set worker.process: false in collaborator.yaml",
        )
    from collaborator.computing.apart import ComputedSite, SeparateComputation
    from collaborator.computing.launching import ProcessStart
    from collaborator.computing.place import SiteFolders, launch_of
    from collaborator.computing.supervision import Supervision

    hidden = (site.cert_folder, site.ledger_file, site.approval_file, site.egress, site.history_file)
    folders = SiteFolders(site.workspace, site.code.folder, site.state, hidden)
    named = derived.given_references(site.plan)
    references = None if named is None else own_references(site.runs, named)
    own = ComputedSite(site.plan, site.config, site.participant, site.code.folder, site.code.digest, references)
    launch = launch_of(site.plan, site.config, site.participant, folders)
    return SeparateComputation(own, Supervision(partial(ProcessStart, launch), launch.log))


class _Here(Computation):
    """What computes in this process, beside keys, ledger and network."""

    def __init__(self, site: PreparedSite, processes: SiteProcesses | None) -> None:
        self._site, self._processes = site, processes
        self._records: SiteRecords | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Return where it computes; see `Computation.words`."""
        return ("this process, which has the keys; worker.process: true gives own code one without",)

    def binding(self) -> PlanBinding:
        """Return what the plan is bound to; see `Computation.binding`."""
        binding = plan_binding(self._site.plan, self._site.code.folder)
        set_threads(self._site.config.threads, binding.vector.size)
        return binding

    def records(self) -> KnownRecords:
        """Read the records; see `Computation.records`."""
        self._records = read_records(self._site)
        return KnownRecords.of(self._records)

    def task(
        self, binding: PlanBinding, account: PrivacyBudget | None
    ) -> tuple[TrainingClient, DeviceGroup | None]:
        """Put records and model together; see `Computation.task`."""
        if self._records is None:
            raise LocalProtocolError("the records are put together with a model before they are read")
        return computing_client(self._site, binding, self._records, account, self._processes)

    def take_notices(self) -> list[News]:
        """Return nothing: this process would have ended too."""
        return []

    def close(self) -> None:
        """Leave everything as it is: it ends with this process."""


def computing_client(
    site: PreparedSite,
    binding: PlanBinding,
    records: SiteRecords,
    account: PrivacyBudget | None,
    processes: SiteProcesses | None,
) -> tuple[TrainingClient, DeviceGroup | None]:
    """Return what computes on this site's records, and the group that it computes with.

    Args:
        site: what was read of it.
        binding: of the plan.
        records: its own.
        account: its privacy budget; None where it keeps none, checks, or is not the site's first process.
        processes: those of this site; None where there is one.

    Raises:
        FedfairError: the device, the model and the records do not fit together, or do not fit the plan.
    """
    plan, device = site.plan, choose_device(site.config.device or site.plan.training.device)
    device = device if processes is None else processes.device(device)
    model = flat_model(plan, binding.schema, device, site.code.folder)
    protection = site_protection(account.record) if derived.is_noised(plan) and account is not None else None
    group: DeviceGroup | None = None
    if processes is not None:
        check_divisible(model.module)
        group = join_processes(processes, device)
        protection = group.protection(protection) if derived.is_noised(plan) else None
    task = TrainingClient(
        plan,
        site.participant,
        records.splits,
        model,
        protection=protection,
        masked=derived.is_masked(plan),
        parts=ALONE if group is None else group,
    )
    return task, group


def _check_weight(site: PreparedSite, task: SiteTask) -> None:
    """Refuse, before anything is sent, records whose weight the plan's masked sums cannot hold."""
    most = derived.greatest_weight(site.plan)
    if derived.is_masked(site.plan) and task.training_weight > most:
        raise PlanError(
            f"{site.participant} has {task.training_weight} training records; the plan allows at most {most}",
            "raise secure_aggregation.most_records in the plan, and have every site approve it again",
        )


def masking_site(ready: Readiness) -> secagg.SessionSite:
    """Return who this site is in secure aggregation, and what it insists on there."""
    site, policy = ready.site, masking_policy(ready.site.plan, ready.site.config.policy)
    plan = session_plan(site.plan, ready.binding.digest)
    member = site.plan.federation.collaborators.index(site.participant) + 1
    shapes = sum_shapes(site.plan, ready.task.layout, ready.binding.schema)
    key = site.identity().signing_key
    threads, width = site.config.threads or 1, ready.task.layout.dtype
    return secagg.SessionSite(member, roster_of(site.plan), key, plan, policy, shapes, threads, width)


def introduction(site: PreparedSite, identity: SiteIdentity, plan_digest: bytes, approval: bytes) -> Hello:
    """Return the first frame of a stream."""
    binding = bind_certificate(
        identity.signing_key, fingerprint(identity.certificate), site.federation, site.participant
    )
    return Hello(PROTOCOL_VERSION, __version__, plan_digest, approval, binding)


def check_run(ready: Readiness, welcome: Welcome) -> None:
    """Check the run that the aggregator announces against the site's policy; the receiver holds it to that.

    Raises:
        PolicyError: the policy refuses something that a run of this kind needs.
    """
    site, evaluated = ready.site, welcome.evaluation_only
    asked = AskedTerms(site.plan, site.code.digest, evaluation_only=evaluated, own_run=ready.own_run)
    check_policy(asked, site.config.policy, site.participant)
