"""The four methods by which members speak to a hub: who is let in, what is read, and where a fault ends.

Identity is settled from the certificate, and from the member's own signature over it, before a byte of the peer's
is read. What a member may not do is answered by a refusal that names its check, after a while that bounds how
often it can be tried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import grpc

from aggregator.admission import TrustUnreadableError
from aggregator.hub.act_log import ActLog
from aggregator.hub.archives import ArchiveStore
from aggregator.hub.folder import HubFolder
from aggregator.server_call import CallEnded, Context, ServerCall
from aggregator.token_bucket import PEER_LIMITS, PeerLimits, TokenBuckets
from fedfair.consortium.acts import ActKind, parse_act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import ConsortiumMember, Right
from fedfair.errors import FedfairError, IdentityError, RemoteProtocolError
from fedfair.identity.roster import verify_binding
from fedfair.identity.store import load_trust
from fedfair.identity.tls import authenticate, shown_certificate
from fedfair.plan.digest import format_digest
from fedfair.wire.hub import (
    ACT_METHOD,
    ACTS_METHOD,
    BINDING_KEY,
    GET_METHOD,
    MAX_REQUEST_BYTES,
    PUT_METHOD,
    SERVICE,
    ActRequest,
    ActsRequest,
    ActWritten,
    Entries,
    GetRequest,
    Held,
    HubRefusal,
    Piece,
    PutRequest,
    Reply,
    decode_act_request,
    decode_acts_request,
    decode_get_request,
    decode_put_request,
    encode_reply,
)
from fedfair.wire.hub_client import LATER
from fedfair.wire.limits import MAX_CHUNK_BYTES

REQUEST_SECONDS = 60.0
"""How long a member may take to bring one request."""

_Asked = TypeVar("_Asked", ActsRequest, GetRequest, PutRequest, ActRequest)
_Method = Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]


class HubService:
    """The methods of one hub.

    Args:
        folder: of the hub.
        log: the record.
        archives: what was brought.
        limits: on the acts of one certificate, and how long a refusal takes.
    """

    def __init__(
        self, folder: HubFolder, log: ActLog, archives: ArchiveStore, limits: PeerLimits = PEER_LIMITS
    ) -> None:
        self._folder, self._log, self._archives = folder, log, archives
        self._refusal_seconds = limits.refusal_seconds
        self._acts = TokenBuckets(limits.burst, limits.seconds_per_token)
        self._bringing = asyncio.Lock()

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return what a gRPC server needs; requests stay bytes so that a bad one can be answered in words."""
        methods: dict[str, _Method] = {
            ACTS_METHOD: self._method(decode_acts_request, self._entries),
            GET_METHOD: self._method(decode_get_request, self._piece),
            PUT_METHOD: self._method(decode_put_request, self._held),
            ACT_METHOD: self._method(decode_act_request, self._written),
        }
        handlers = {name: grpc.stream_unary_rpc_method_handler(method) for name, method in methods.items()}
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _method(
        self, decode: Callable[[bytes], _Asked], answer: Callable[[ConsortiumMember, _Asked], Awaitable[Reply]]
    ) -> _Method:
        async def method(_requests: AsyncIterator[bytes], context: Context) -> bytes:
            call = ServerCall(context)
            try:
                return encode_reply(await self._answered(call, context, decode, answer))
            except CallEnded:
                # Nobody is there to read it.
                return b""

        return method

    async def _answered(
        self,
        call: ServerCall,
        context: Context,
        decode: Callable[[bytes], _Asked],
        answer: Callable[[ConsortiumMember, _Asked], Awaitable[Reply]],
    ) -> Reply:
        try:
            member = self._admitted(call, context)
            async with asyncio.timeout(REQUEST_SECONDS):
                request = decode(_short_enough(await call.read()))
            if isinstance(request, ActRequest):
                self._limit(call, member)
            return await answer(member, request)
        except TimeoutError:
            await call.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no request within {REQUEST_SECONDS:.0f} s")
            return HubRefusal(LATER, "no request")
        except TrustUnreadableError as fault:
            return HubRefusal(LATER, fault.message, fault.remedy)
        except ConsortiumError as fault:
            refusal = HubRefusal(fault.check.value, fault.message, fault.remedy)
        except (IdentityError, RemoteProtocolError) as fault:
            refusal = HubRefusal(RecordCheck.AUTHOR.value, fault.message, fault.remedy)
        except FedfairError as fault:
            return HubRefusal(LATER, fault.message, fault.remedy)
        except OSError as fault:
            return HubRefusal(LATER, f"the hub cannot write its files: {fault.strerror}", "try again later")
        await asyncio.sleep(self._refusal_seconds)
        return refusal

    def _admitted(self, call: ServerCall, context: Context) -> ConsortiumMember:
        """Return whose call this is: a member whose own key has bound the certificate of the connection."""
        now, consortium = datetime.now(UTC), self._log.record.consortium
        try:
            trust = load_trust(self._folder.certificates, now)
        except FedfairError as fault:
            raise TrustUnreadableError(fault.message, fault.remedy) from fault
        keys = {name: member.public_key for name, member in consortium.members.items()}
        peer = authenticate(
            call.auth_context,
            federation=consortium.federation,
            roster=keys,
            ca=trust.ca,
            crl=trust.crl,
            now=now,
            listed="the list of members",
        )
        told = dict(context.invocation_metadata() or ())
        binding = told.get(BINDING_KEY, b"")
        verify_binding(
            binding if isinstance(binding, bytes) else b"",
            public_key=keys[peer.name],
            certificate_fingerprint=peer.certificate_fingerprint,
            federation=consortium.federation,
            name=peer.name,
        )
        return consortium.member(peer.name)

    def _limit(self, call: ServerCall, member: ConsortiumMember) -> None:
        if not self._acts.take(shown_certificate(call.auth_context), time.monotonic()):
            raise ConsortiumError(
                RecordCheck.LIMIT,
                f"{member.name} acts too often: {self._acts.burst} at once, then one in {self._acts.seconds:g} s",
                "wait a moment",
            )

    async def _entries(self, _: ConsortiumMember, request: ActsRequest) -> Reply:
        entries = self._log.after(request.since)
        if not entries and request.wait_seconds:
            await self._log.changed(request.since, request.wait_seconds)
            entries = self._log.after(request.since)
        return Entries(entries)

    async def _piece(self, member: ConsortiumMember, request: GetRequest) -> Reply:
        path = self._readable(member, request.digest)
        return await asyncio.to_thread(_piece_of, path, request.offset)

    def _readable(self, member: ConsortiumMember, digest: bytes) -> Path:
        for study in self._log.record.studies.values():
            if digest == study.submitted.archive_digest and study.is_open_to(member):
                return self._folder.archive(digest)
            if digest == study.result_digest and study.shows_result_to(member):
                return self._folder.result(digest)
        # One sentence for both, so that nobody learns of what it may not read.
        raise ConsortiumError(
            RecordCheck.ROLE,
            f"there is no {format_digest(digest)} that {member.name} ({member.role.value}) may read",
            "`fedfair study status` shows what there is",
        )

    async def _held(self, member: ConsortiumMember, request: PutRequest) -> Reply:
        if not member.may(Right.SUBMIT):
            raise ConsortiumError(
                RecordCheck.ROLE,
                f"{member.name} ({member.role.value}) may not {Right.SUBMIT.value}",
                "ask the lead for another role, or have somebody do it who may",
            )
        async with self._bringing:
            return Held(await asyncio.to_thread(self._archives.put, member.name, request))

    async def _written(self, member: ConsortiumMember, request: ActRequest) -> Reply:
        act = parse_act(request.act)
        if act.by != member.name:
            raise ConsortiumError(
                RecordCheck.AUTHOR,
                f"{member.name} brings an act of {act.by}",
                "each member posts its own acts",
            )
        if act.kind is ActKind.SUBMITTED and not self._log.has(request.act):
            # The cheap checks first: an archive is unpacked only for who may submit.
            self._log.record.check_act(request.act)
            async with self._bringing:
                await asyncio.to_thread(self._archives.take, act, self._log.record.consortium)
        return ActWritten(await self._log.post(request.act))


def _short_enough(request: bytes | None) -> bytes:
    if request is None or len(request) > MAX_REQUEST_BYTES:
        length = "nothing" if request is None else f"{len(request)} bytes"
        raise RemoteProtocolError(f"the request has {length}, at most {MAX_REQUEST_BYTES} are read")
    return request


def _piece_of(path: Path, offset: int) -> Piece:
    with path.open("rb") as source:
        length = source.seek(0, 2)
        source.seek(min(offset, length))
        return Piece(length, source.read(MAX_CHUNK_BYTES))
