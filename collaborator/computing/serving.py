"""The worker's side: reads the records, makes the model, and answers one question after the other.

It has no key, no ledger and no link. Before noise is drawn it says what is about to be released, and waits until
the service has written that down. Whatever own code does here, the service takes nothing from it on trust.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collaborator.computing import forms, messages
from collaborator.computing.carrier import Channel, EndedError
from collaborator.computing.codec import MAX_TEXT_BYTES, MAX_WORDS, decode, encode
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import FedfairError, LocalProtocolError, PlanError, PrivacyError
from fedfair.ids import RoundNumber, parse_participant_id
from fedfair.plan.derived import is_masked, is_noised
from fedfair.plan.digest import code_digest
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.privacy.releases import GaussianRelease, Release, SharedNoiseRelease, SkellamRelease
from fedfair.process.kept_memory import keep_freed_memory
from fedfair.signed_message import labelled_message
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.source import SiteRecords, read_site_records
from fedfair.training.assembly import flat_model
from fedfair.training.binding import initial_model, stated_schema
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device, set_threads
from fedfair.training.dp_sgd import RecordProtection
from fedfair.training.reference_records import records_digest
from fedfair.wire.limits import MAX_VECTOR_BYTES

MAX_QUESTION_BYTES = MAX_VECTOR_BYTES + MAX_TEXT_BYTES
"""The service is trusted here; this only bounds what a broken one would have this process allocate."""


_USUAL = (
    ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, NameError, OSError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""What own code may raise, each of which becomes an answer."""


def serve(channel: Channel, unprotected: tuple[str, ...]) -> None:
    """Answer until the service has gone.

    Args:
        channel: to the service.
        unprotected: what this process has not been able to give up, in words.
    """
    worker = Answerer(channel, unprotected)
    try:
        while True:
            asked = decode(channel.receive(MAX_QUESTION_BYTES), messages.ASKED)
            channel.send(encode(worker.answer(asked)))
    except EndedError:
        return


class Seeds:
    """The seeds of one contribution: they follow from 32 bytes that the service draws anew for each.

    A question that is asked again, because the process that was to answer it has died, has the same seeds, and so
    the same answer; nobody has seen the first one.
    """

    def __init__(self) -> None:
        self._seed, self._drawn = b"", 0

    def begin(self, seed: str) -> None:
        """Begin the seeds of another contribution."""
        self._seed, self._drawn = bytes.fromhex(seed), 0

    def __call__(self, *words: str | int) -> int:
        """Return the next seed, of 256 bits; raises LocalProtocolError where the service has drawn none."""
        if not self._seed:
            raise LocalProtocolError("noise is drawn for a question that has no seed")
        self._drawn += 1
        stated = [self._seed, str(self._drawn).encode(), *(str(word).encode() for word in words)]
        return int.from_bytes(hashlib.sha256(labelled_message("fedfair/computing/seed/1", stated)).digest(), "big")


class Answerer:
    """What computes, from `Begin` on.

    Args:
        channel: to the service, for what must be written down before noise is drawn.
        unprotected: as in `serve`.
    """

    def __init__(self, channel: Channel, unprotected: tuple[str, ...]) -> None:
        self._channel, self._unprotected = channel, unprotected
        self._begun: messages.Begin | None = None
        self._records: SiteRecords | None = None
        self._task: TrainingClient | None = None
        self._begins: NDArray[np.floating] | None = None
        self._seeds = Seeds()

    def answer(self, asked: object) -> object:
        """Return the answer to a question; a fault is an answer too."""
        answers: dict[type[Any], Callable[[Any], object]] = {
            messages.Begin: self._begin,
            messages.Load: self._load,
            messages.Assemble: self._assemble,
            messages.Scale: self._scale,
            messages.Judge: self._judge,
            messages.AskContribution: self._contribute,
            messages.AskChange: self._change,
            messages.AskNumbers: self._protect,
            messages.AskLosses: self._evaluate,
        }
        try:
            return answers.get(type(asked), _no_question)(asked)
        except EndedError:
            raise
        except FedfairError as fault:
            return messages.Failed(type(fault).__name__, _short(fault.message), _short(fault.remedy))
        except _USUAL as fault:
            # With any other fault this process ends, and the service hears of that.
            return messages.Failed(type(fault).__name__, _short(str(fault)), "")

    # ------------------------------------------------------------------ the plan, the records, and both together

    @cached_property
    def _plan(self) -> Plan:
        begun = self._started
        plan = load_plan(Path(begun.plan))
        return plan if self._config.frozen is None else plan.with_frozen(Path(self._config.frozen))

    @cached_property
    def _config(self) -> SiteConfig:
        return SiteConfig.model_validate_json(self._started.config)

    @property
    def _started(self) -> messages.Begin:
        if self._begun is None:
            raise LocalProtocolError("nothing has begun")
        return self._begun

    @property
    def _client(self) -> TrainingClient:
        if self._task is None:
            raise LocalProtocolError("records and model are not together yet")
        return self._task

    def _begin(self, asked: messages.Begin) -> messages.Bound:
        self._begun = asked
        plan, code = self._plan, Path(asked.code)
        if plan.task.references:
            found = code_digest(code_digests(plan.task.references, code)).hex()
            if found != asked.code_digest:
                raise PlanError("the copy of the plan's code is not the code that was looked at")
        layout, vector = initial_model(plan, stated_schema(plan), code)
        set_threads(self._config.threads, vector.size)
        if is_masked(plan):
            keep_freed_memory(vector.nbytes)
        return messages.Bound(layout.entries, layout.frozen.hex(), vector, self._unprotected)

    def _load(self, _: messages.Load) -> messages.Loaded:
        begun, plan = self._started, self._plan
        found = read_site_records(
            plan,
            self._config,
            parse_participant_id(begun.participant),
            workspace_of(Path(begun.plan)),
            code=Path(begun.code),
            storage=FeatureStorage(Path(begun.scratch)),
            fewest=self._config.policy.min_records,
        )
        self._records = found
        held = {name: len(part) for name, part in found.splits.parts.items()}
        survey = None if found.splits.survey is None else forms.of_survey(found.splits.survey)
        withheld = tuple(map(_short, found.withheld))
        return messages.Loaded(
            held, records_digest(found.splits), found.profile, withheld, survey, found.splits.owners
        )

    def _assemble(self, _: messages.Assemble) -> messages.Assembled:
        plan, records = self._plan, self._records
        if records is None:
            raise LocalProtocolError("the records are not read yet")
        device = choose_device(self._config.device or plan.training.device)
        model = flat_model(plan, stated_schema(plan), device, Path(self._started.code))
        self._task = TrainingClient(
            plan,
            parse_participant_id(self._started.participant),
            records.splits,
            model,
            protection=RecordProtection(self._seeds, self._write_down) if is_noised(plan) else None,
            masked=is_masked(plan),
        )
        self._specs = sum_specs(plan, model.layout, stated_schema(plan))
        return messages.Assembled(self._task.training_weight, self._task.own_values(None))

    # ------------------------------------------------------------------------------------------------- questions

    def _scale(self, asked: messages.Scale) -> messages.Settled:
        self._client.apply_scaling(FeatureScaling(asked.mean, asked.scale))
        return messages.Settled()

    def _judge(self, asked: messages.Judge) -> messages.Settled:
        self._client.apply_references(forms.references_of(asked))
        return messages.Settled()

    def _contribute(self, asked: messages.AskContribution) -> messages.Contributed:
        task, remembered = self._client, forms.memory_of(asked.memory)
        self._seeds.begin(asked.seed)
        self._begins = remembered.kept
        request = forms.request_of(asked, self._specs)
        found = task.contribution(request, forms.model_of(asked.model), remembered)
        return messages.Contributed(found.header, found.body, found.replaced, self._fault, self._kept)

    def _change(self, asked: messages.AskChange) -> messages.ChangeMade | messages.NoChange:
        task, remembered = self._client, forms.memory_of(asked.memory)
        self._seeds.begin(asked.seed)
        self._begins = remembered.kept
        place = forms.model_of(asked.model), RoundNumber(asked.number), asked.attempt
        change = task.summable_change(*place, remembered)
        if change is None:
            return messages.NoChange(self._fault)
        further = {name: np.asarray(value, np.float64) for name, value in change.further.items()}
        moved = (change.weight, change.threshold, change.model, change.replaced, further)
        return messages.ChangeMade(*moved, self._fault, self._kept)

    def _protect(self, asked: messages.AskNumbers) -> messages.NumbersMade:
        self._seeds.begin(asked.seed)
        place = forms.model_of(asked.model), RoundNumber(asked.number), asked.attempt
        return messages.NumbersMade(self._client.noised_numbers(*place), self._fault)

    def _evaluate(self, asked: messages.AskLosses) -> messages.LossesFound:
        # A process that was started since the last sum begins where that one did.
        if asked.kept is not None and (self._begins is None or not np.array_equal(asked.kept, self._begins)):
            self._client.records.begin_kept(asked.kept)
        return forms.of_losses(self._client.losses_of(forms.model_of(asked.model)))

    @property
    def _fault(self) -> str:
        return _short(self._client.last_fault)

    @property
    def _kept(self) -> NDArray[np.floating] | None:
        return self._client.kept

    def _write_down(self, release: Release) -> None:
        """Have a release written down before its noise is drawn. Raises PrivacyError where it must not happen."""
        match release:
            case GaussianRelease():
                told: messages.Releasing = messages.ReleasingRecords(release)
            case SharedNoiseRelease():
                told = messages.ReleasingShare(release)
            case SkellamRelease():
                told = messages.ReleasingSite(release)
        self._channel.send(encode(told))
        said = decode(self._channel.receive(MAX_TEXT_BYTES), messages.ASKED)
        if isinstance(said, messages.ReleaseDenied):
            raise PrivacyError(said.words)
        if not isinstance(said, messages.ReleaseWritten):
            raise LocalProtocolError("the service does not say that a release is written down")


def _no_question(asked: object) -> object:
    return messages.Failed("LocalProtocolError", f"{type(asked).__name__} is no question", "")


def _short(words: str) -> str:
    return words[:MAX_WORDS]
