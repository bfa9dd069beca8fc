"""`collaborator.yaml`: what one site says about itself and to nobody else.

Decides where a site's own data, keys and approval are, what it computes on, and its policy: terms that no plan and
no aggregator can change. Whether a plan keeps to the policy is decided by `plan_check.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from fedfair.plan import fields
from fedfair.plan.algorithms import AlgorithmName
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import read_document
from fedfair.policy.disclosures import MEANING
from fedfair.policy.proxy import ENVIRONMENT, NONE, parse_proxy
from fedfair.policy.site_format import FormatSection
from fedfair.policy.site_sql import SqlSection
from fedfair.policy.site_worker import WorkerSection
from fedfair.statistics.table import Purpose

if TYPE_CHECKING:  # what the table of statistics lists is known when the module is loaded, and no sooner
    AllowedPurpose: TypeAlias = str
    RepeatablePurpose: TypeAlias = str
    Revealed: TypeAlias = str
else:
    AllowedPurpose = Literal[tuple(dict.fromkeys(purpose.statistic.policy_word for purpose in Purpose))]
    RepeatablePurpose = Literal[tuple(purpose.value for purpose in Purpose if not purpose.statistic.has_query)]
    Revealed = Literal[tuple(MEANING)]


class SiteData(fields.Section):
    """Where the site's own records are, and whose; which of the paths is needed depends on the plan's data."""

    train: fields.Text | None = None
    """file with the training records; a path"""
    test: fields.Text | None = None
    """file with the test records; a path"""
    root: fields.Text | None = None
    """folder of the files, for data that are several files; a path"""
    name: fields.Text | None = None
    """name of this data set in the ledger; names promise that nobody is in two data sets; null makes no such
    promise (docs/explain/privacy.md)"""
    sql: SqlSection | None = None
    """database that holds the records, in place of files (docs/how-to/databases.md)"""
    record_id: fields.Text | None = None
    """column of this site's own data that says whose a record is, for persons who withdraw
    (docs/how-to/withdrawal-by-a-person.md); null: nothing says"""

    format: FormatSection | None = None
    """how this site's own file is written, where it differs from the plan's csv (docs/how-to/own-data.md); null:
    as the plan"""

    @model_validator(mode="after")
    def _check(self) -> SiteData:
        fields.refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[fields.Fault]:
        if self.sql is None:
            return
        for name in ("train", "test", "root"):
            if getattr(self, name) is not None:
                yield fields.Fault((name,), "is stated beside sql", "keep the file or the database")


class BudgetSection(fields.Section):
    """The most that may ever be released about this site's records, over all plans together."""

    epsilon: fields.PositiveFloat
    """the most that all releases may cost together, above 0"""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """delta at which epsilon is counted, between 0 and 1"""


def _check_proxy(text: str) -> str:
    if text not in (NONE, ENVIRONMENT):
        parse_proxy(text, "the value")
    return text


class NetworkSection(fields.Section):
    """How this site reaches the aggregator."""

    # It may hold a password.
    proxy: Annotated[str, fields.parsed_by(_check_proxy)] = Field(default=ENVIRONMENT, repr=False)
    """HTTP proxy to go through: none, environment (https_proxy and no_proxy), or its URL,
    http://user:password@host:port (docs/how-to/network.md)"""


class AllPlansSection(fields.Section):
    """The most that this site answers about its records, over all plans together."""

    plans: fields.PositiveInt | None = None
    """most plans in whose runs this site takes part; null for any number"""
    rounds: fields.PositiveInt | None = None
    """most training rounds, each 16 of a run counted when they begin; null for any number"""
    evaluations: fields.PositiveInt | None = None
    """most evaluations of models; null for any number"""


class WithdrawalsSection(fields.Section):
    """The terms about persons who have withdrawn (docs/how-to/withdrawal-by-a-person.md)."""

    together: fields.PositiveInt = 20
    """fewest persons by whom exact sums may differ from those of an earlier run of this site, since they have
    withdrawn: with fewer this site waits; 1 never waits, and shows what a single person has added"""


class ReleaseSection(fields.Section):
    """What a release audit may find before this site withholds its agreement (docs/explain/release-audit.md)."""

    membership_tpr_at_01: float | None = Field(default=0.05, ge=0, le=1)
    """the most of its training records that may be found at one mistake in a hundred, in any group, 0 to 1; null
    for any"""
    membership_tpr_at_001: float | None = Field(default=0.01, ge=0, le=1)
    """the same at one mistake in a thousand"""
    epsilon_lower_bound: float | None = Field(default=2.0, ge=0)
    """the most that the audit may prove epsilon of single records to be, from 0; null for any"""
    judged_by: Literal["lower_end", "estimate"] = "lower_end"
    """what is compared with the limits on records that are found: lower_end (of the interval, which is evidence)
    or estimate (withholds sooner, also by chance)"""
    require_audit: bool = False
    """true takes part in no plan without evaluation.release_audit"""


class SitePolicy(fields.Section):
    """The terms that hold for every request of a plan to this site."""

    allow_plain_sums: bool = False
    """true lets the aggregator see this site's updates in the clear"""
    allow_module_code: bool = False
    """true lets the plan name any Python code (module:function) that runs here; deprecated: use module_code"""
    module_code: fields.Items[fields.Digest] = ()
    """digests (`fedfair plan digest`) of the code that may run here; if any is listed, no other code runs,
    whatever allow_module_code says"""
    initial_weights: fields.Items[fields.WeightsOrigin] = Field(
        default=(fields.SEED, fields.OWN_RUN), min_length=1
    )
    """weights that a run may begin with: seed (made from the plan's seed), own-run (those with which this site's
    own copy of a run ended), or a digest (`fedfair plan check` prints it)"""
    algorithms: fields.Items[AlgorithmName] | None = Field(default=None, min_length=1)
    """training algorithms that this site takes part in; null for any"""
    reveals: fields.Items[Revealed] = Field(default=("update-sums", "loss-sums", "feature-sums"), min_length=1)
    """what a plan may make known: update-sums, loss-sums, loss-quantiles, feature-sums, score-sums, survey-sums,
    reference-sums, slice-sums, slice-outcomes, audit-sums, column-statistics, exact-statistics, group-losses,
    site-losses, site-updates, records (docs/reference/site-policy.md)"""
    publish_site_means: bool = False
    """true lets a plan show all sites this site's number of records, mean loss and accuracy"""
    max_bins: fields.PositiveInt = 256
    """most bins of an evaluation's histogram of losses: a record that is alone in its bin shows which bin that is,
    and three bits more"""
    max_bins_per_record: fields.PositiveFloat = 8.0
    """the same for each record of this site, over all its splits: with fewer records than evaluation.bins divided
    by this it takes no part in evaluations, above 0"""
    all_plans: AllPlansSection = AllPlansSection()
    """most that all plans together may ask about this site's records, by data.name where that is stated"""
    max_rounds: fields.PositiveInt | None = None
    """most training rounds this site takes part in under one plan, over all its runs; null for any number"""
    max_runs: fields.PositiveInt | None = None
    """most runs of one plan this site takes part in; null takes 3 where sums are masked or noised, and any number
    where they are neither"""
    evaluation_cohort: Literal["any", "same"] = "any"
    """same: all masked evaluations under one plan must have the same sites, so that none can be subtracted from
    another; any"""
    training_cohort: Literal["same", "any"] = "same"
    """same: a masked training sum that this site helped to open is opened again only for the same sites, so that
    none can be subtracted from another; any"""
    earlier_cohort: Literal["same", "any"] = "same"
    """same: a model, a column or a survey that this site helped to open under another plan is opened again only
    for the same sites, so that none can be subtracted; any"""
    max_reopened_sums: int = Field(default=0, ge=0)
    """for how many sums, over all runs of a plan, this site helps to open one and the same sum for another set of
    sites than before; the two can be subtracted, which shows what the sets do not share"""
    max_evaluations: int | None = Field(default=None, ge=0)
    """most evaluations of models this site takes part in under one plan, in runs and on demand; null for all that
    the other terms allow"""
    max_evaluations_on_demand: int | None = Field(default=None, ge=0)
    """most saved models this site evaluates under one plan (`fedfair aggregator evaluate`); null takes 10 where
    sums are masked or noised, and any number where they are neither"""
    min_collaborators: fields.PositiveInt | None = None
    """fewest collaborators in every sum this site takes part in; null takes all of the plan's where sums are
    masked, and any number where they are not: two sums that differ by one site show its part"""
    min_records: fields.PositiveInt = 20
    """fewest training records that this site takes part with, after the plan's filters; with fewer it adds zeros
    to every sum, and a held-out split of fewer is in no sum"""
    rows: Literal["features", "any"] = "features"
    """columns whose values a plan may choose this site's rows by (task.data.csv.rows): features of the plan, or
    any, such as a number that names one person"""
    mode: Literal["malicious", "semi-honest"] = "malicious"
    """weakest protection of a masked sum: malicious (the aggregator may lie) or semi-honest"""
    colluders: int = Field(default=0, ge=0)
    """fewest colluding collaborators that a masked sum must withstand"""
    key_agreement: Literal["x25519", "x25519-mlkem768"] = "x25519"
    """weakest key agreement of a masked sum: x25519, or x25519-mlkem768 to demand both"""
    ring_bits: Literal[32, 24, 20, 16] = 16
    """coarsest masked numbers, in bits: 32, 24, 20 or 16"""
    max_clip: fields.PositiveFloat = 1024.0
    """largest change of one parameter that a masked sum may ask for, above 0"""
    max_epsilon: fields.PositiveFloat | None = None
    """the most epsilon that one plan may cost this site, at its own delta, above 0; null for any"""
    max_attempts: fields.PositiveInt = 3
    """most attempts at one masked sum about the same model"""
    repeatable: fields.Items[RepeatablePurpose] = ()
    """purposes whose unchanged update may be masked a second time after a sum that was lost"""
    purposes: fields.Items[AllowedPurpose] = Field(
        default=("training", "evaluation", "standardisation"), min_length=1
    )
    """sums that this site takes part in: training, evaluation, standardisation (any sum over its columns before
    round 1)"""
    withdrawals: WithdrawalsSection = WithdrawalsSection()
    """what holds after persons have withdrawn"""
    release: ReleaseSection = ReleaseSection()
    """what a release audit may find before this site withholds its agreement to the model's release"""
    survey: Literal["warn", "stop"] = "warn"
    """what this site does where a survey before round 1 shows a wrong unit or coding of its own: warn (name it and
    continue), or stop (name it and leave before anything is trained)"""

    @model_validator(mode="after")
    def _check(self) -> SitePolicy:
        fields.refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[fields.Fault]:
        lists = ("purposes", "module_code", "initial_weights", "algorithms", "reveals")
        for name in lists:
            for index, item in fields.repeated(getattr(self, name) or ()):
                yield fields.Fault((name, index), f"{item!r} is listed twice", "remove one of them")


class SiteConfig(fields.Section):
    """One site's own file."""

    collaborator: fields.ParticipantName
    """name of this site in the plan"""
    data: SiteData = SiteData()
    """where the site's own records are"""
    device: fields.Device | None = None
    """auto, cpu, cuda or mps; null takes training.device of the plan"""
    threads: fields.PositiveInt | None = Field(default=None, le=1024)
    """threads to compute with, 1 to 1024; null for all cores, but for one where the model has at most 16384
    parameters"""
    worker: WorkerSection = WorkerSection()
    """what reads the records and trains, as a process of its own"""
    network: NetworkSection = NetworkSection()
    """how this site reaches the aggregator"""
    policy: SitePolicy = SitePolicy()
    """what a plan may ask of this site"""
    budget: BudgetSection | None = None
    """what all plans together may cost (docs/explain/privacy.md); null for no budget"""
    frozen: fields.Text | None = None
    """own copy of the frozen parameters: a file, a folder of .safetensors, or of a Hugging Face cache; null means
    beside the plan"""
    ledger: fields.Text | None = None
    """record of everything released about the data; a path; null means ledger.sqlite"""
    cert_folder: fields.Text = "cert"
    """folder of the keys and certificates; a path"""
    approval: fields.Text | None = None
    """this site's approval; a path; null means approvals/<name>.json"""
    history: fields.Text | None = None
    """what this site has helped to open, over all plans; a path; null means history/<name>.sqlite"""
    egress: fields.Text | None = None
    """record of everything that is sent; a path; null means egress/<name>.jsonl"""
    withdrawals: fields.Text | None = None
    """record of the persons who have withdrawn; a path; null means withdrawals/<name>.jsonl"""


def load_site_config(path: Path) -> SiteConfig:
    """Return a site's configuration; its paths are absolute, relative ones start from the file's folder.

    Raises:
        PlanError: the file cannot be read or breaks the schema; the message tells all faults with their lines.
    """
    config = validated(SiteConfig, read_document(path))
    folder = path.resolve().parent
    data = config.data.model_copy(
        update={name: _absolute(getattr(config.data, name), folder) for name in ("train", "test", "root")}
    )
    if data.sql is not None:
        data = data.model_copy(update={"sql": data.sql.placed(lambda path: _absolute(path, folder))})
    own = ("cert_folder", "approval", "egress", "ledger", "history", "frozen", "withdrawals")
    paths = {name: _absolute(getattr(config, name), folder) for name in own}
    # Every reading of records looks there, so it is never left open.
    paths["withdrawals"] = paths["withdrawals"] or str(folder / "withdrawals" / f"{config.collaborator}.jsonl")
    worker = config.worker.model_copy(update={"folder": _absolute(config.worker.folder, folder)})
    return config.model_copy(update={"data": data, "worker": worker, **paths})


def _absolute(text: str | None, folder: Path) -> str | None:
    return None if text is None else str(folder / Path(text).expanduser())
