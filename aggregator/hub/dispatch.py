"""Hands each call of a round to the run of its study, which the call names by the plan's digest.

Until a study runs, and after it is over, its collaborators hear where it is, in words. Who may take part
is looked at by the service of the run itself.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import grpc

from aggregator.hub.act_log import ActLog
from aggregator.hub.runs import StudyRuns
from aggregator.server_call import CallEnded, Context, ServerCall
from aggregator.service import Service
from aggregator.token_bucket import PEER_LIMITS, PeerLimits, TokenBuckets
from fedfair.consortium.studies import ConsortiumStudy, StudyPhase
from fedfair.identity.tls import shown_certificate, shown_name
from fedfair.wire.hub import PLAN_KEY
from fedfair.wire.service import CHECK_METHOD, PARTICIPATE_METHOD, SERVICE

_WAITING = frozenset({StudyPhase.PROPOSED, StudyPhase.READY})


class StudyDispatch:
    """The methods of `fedfair.v1.Federation`, for all studies of a hub.

    Args:
        log: says where each study is.
        runs: drive them.
        limits: on how often one certificate may ask for a study that is over.
    """

    def __init__(self, log: ActLog, runs: StudyRuns, limits: PeerLimits = PEER_LIMITS) -> None:
        self._log, self._runs = log, runs
        self._late = TokenBuckets(limits.burst, limits.seconds_per_token)

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return what a gRPC server needs."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                PARTICIPATE_METHOD: grpc.stream_stream_rpc_method_handler(self._participate),
                CHECK_METHOD: grpc.stream_unary_rpc_method_handler(self._check),
            },
        )

    async def _participate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        service = await self._service(context)
        if service is not None:
            await service.participate(requests, context)

    async def _check(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        service = await self._service(context)
        return b"" if service is None else await service.check(requests, context)

    async def _service(self, context: Context) -> Service | None:
        """Return the service of the study that a call names; None where the caller has gone.

        Raises:
            grpc.aio.AbortError: there is none for this caller now, in words.
        """
        call = ServerCall(context)
        try:
            study = self._named(str(dict(context.invocation_metadata() or ()).get(PLAN_KEY, "")))
            if study is None:
                await call.abort(grpc.StatusCode.PERMISSION_DENIED, "this hub has no study with this plan")
                return None
            who = shown_name(call.auth_context).rpartition("/")[2]
            if fault := _fault(study, who):
                await call.abort(*fault)
            late = study.phase is StudyPhase.FINISHED
            if not late or self._late.take(shown_certificate(call.auth_context), time.monotonic()):
                driven = await self._runs.run_of(study)
                if driven is not None:
                    return driven.service
            words = f"the study {study.name} is {study.phase.value}, and nobody is served now"
            told = late and not self._runs.is_closing
            await call.abort(grpc.StatusCode.PERMISSION_DENIED if told else grpc.StatusCode.UNAVAILABLE, words)
        except CallEnded:
            pass
        return None

    def _named(self, digest: str) -> ConsortiumStudy | None:
        found = None
        for study in self._log.record.studies.values():
            if study.submitted.plan_digest.hex() == digest:
                found = study
        return found


def _fault(study: ConsortiumStudy, who: str) -> tuple[grpc.StatusCode, str] | None:
    """Return why a caller is not served; None where it may be."""
    if who in study.withdrawn or who in study.refused:
        return grpc.StatusCode.PERMISSION_DENIED, f"{who} has withdrawn from the study {study.name}, or refused it"
    if who not in study.submitted.sites:
        return grpc.StatusCode.PERMISSION_DENIED, f"{who or 'a stranger'} is no site of the study {study.name}"
    if study.phase in _WAITING:
        return grpc.StatusCode.UNAVAILABLE, f"the study {study.name} is {study.phase.value} and has not begun"
    if study.phase.is_over and study.phase is not StudyPhase.FINISHED:
        return grpc.StatusCode.PERMISSION_DENIED, f"the study {study.name} is {study.phase.value}: {study.words}"
    return None
