"""Calls a hub: asks for acts, fetches and brings files, posts acts.

    client = HubClient(Address(consortium.host, consortium.port), load_identity)
    async with client:
        for entry in await client.acts(record.number, wait_seconds=30):
            record.extend(entry)                                     # `fedfair.consortium.record`
        await client.fetch(digest, length, path)                     # continues what is in the file already
        entry = await client.post(signed_act)                      # the hub's word: `record.check_includes(entry)`

The certificate of the hub is checked before the channel is opened, as a collaborator checks its aggregator's, and
again after every break: then the identity is loaded again too, so a renewed certificate is taken up. Whatever a
hub sends is believed by nobody: entries are verified by the record, files by their digest.

A lost connection is an `UnreachableError`: the same call may be made again. What the hub says no to is a
`HubRefusalError` with the name of the check.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Self, TypeVar

import grpc

from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, RemoteProtocolError, UnreachableError
from fedfair.identity.certificate import fingerprint
from fedfair.identity.preflight import preflight
from fedfair.identity.roster import bind_certificate
from fedfair.identity.store import SiteIdentity
from fedfair.identity.tls import channel_credentials
from fedfair.plan.digest import format_digest
from fedfair.wire.calling import Address, carried_out, open_channel
from fedfair.wire.hub import (
    ACT,
    ACTS,
    BINDING_KEY,
    GET,
    PUT,
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
    Request,
    decode_reply,
    encode_request,
)
from fedfair.wire.limits import MAX_CHUNK_BYTES

CALL_SECONDS = 60.0
"""How long the hub may take to answer, beside the time that it was asked to wait for news."""

LATER = "later"
"""The check of a refusal that says nothing against the call: the same one may be answered later."""

_Answer = TypeVar("_Answer", Entries, Piece, Held, ActWritten)
_METHODS: Mapping[type[Request], str] = MappingProxyType(
    {ActsRequest: ACTS, GetRequest: GET, PutRequest: PUT, ActRequest: ACT}
)


class HubRefusalError(ConnectionRefusedByPeerError):
    """The hub says no, by a named check.

    Args:
        check: its name, as in `fedfair.consortium.faults`.
        message: in the hub's words.
        remedy: what to do about it.
    """

    def __init__(self, check: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.check = check


class HubClient:
    """One member's line to its hub; for one task at a time. Opens its channel when it is first used.

    Args:
        address: of the hub, and the route to it.
        identity: returns the member's present identity; called for every new channel, in a thread.
        recorded: called with every act before it is sent, so that a site can record it, or raise.
    """

    def __init__(
        self,
        address: Address,
        identity: Callable[[], SiteIdentity],
        recorded: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._address = address
        self._identity = identity
        self._recorded = recorded
        self._channel: grpc.aio.Channel | None = None
        self._binding = b""

    async def __aenter__(self) -> Self:
        """Return the client itself; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel."""
        await self.close()

    async def close(self) -> None:
        """Close the channel; the next call opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    async def acts(self, since: int, wait_seconds: int = 0) -> tuple[bytes, ...]:
        """Return the next entries of the record, unverified, in their order.

        Args:
            since: how many entries this side has.
            wait_seconds: how long the hub may wait for news, 0 to 60; none where it has none until then.

        Raises:
            FedfairError: nobody answers, the hub refuses, or what arrived is no answer.
        """
        reply = await self._call(ActsRequest(since, wait_seconds), Entries, wait_seconds)
        return reply.entries

    async def post(self, act: bytes) -> bytes:
        """Post a signed act and return its entry: the hub's word that it is in the record.

        Raises:
            HubRefusalError: a check refuses the act.
            FedfairError: nobody answers, or what arrived is no answer. The act may be in the record all the same.
        """
        request = ActRequest(act)
        self._recorded(act)
        return (await self._call(request, ActWritten)).entry

    async def get(self, digest: bytes, offset: int) -> Piece:
        """Return up to 1 MiB of a file from an offset on, and the length of the whole.

        Raises:
            FedfairError: nobody answers, the hub refuses, or what arrived is no answer.
        """
        return await self._call(GetRequest(digest, offset), Piece)

    async def put(self, digest: bytes, length: int, offset: int, data: bytes = b"") -> int:
        """Bring bytes of a file and return how many the hub has from its beginning.

        Args:
            digest: SHA-256 of the whole, 32 bytes.
            length: of the whole, in bytes.
            offset: where the data belongs: what the hub has.
            data: at most 1 MiB; none only asks.

        Raises:
            FedfairError: nobody answers, the hub refuses, or what arrived is no answer.
        """
        return (await self._call(PutRequest(digest, length, offset, data), Held)).count

    async def fetch(self, digest: bytes, length: int, path: Path) -> None:
        """Fetch a file; an earlier call that was broken off is continued.

        Args:
            digest: SHA-256 of the whole, 32 bytes.
            length: of the whole, in bytes, as the act says; not one byte more is taken.
            path: where it goes, whole; while it grows it has the ending `.part`.

        Raises:
            FedfairError: nobody answers, the hub refuses, or what arrived is another file; that one is removed.
            OSError: it cannot be written.
        """
        part = path.with_name(f"{path.name}.part")
        with part.open("ab") as target:
            if target.tell() > length:
                target.truncate(0)
            while (offset := os.fstat(target.fileno()).st_size) < length:
                piece = await self.get(digest, offset)
                if piece.length != length or not piece.data or offset + len(piece.data) > length:
                    raise RemoteProtocolError(
                        f"the hub's {format_digest(digest)} has {piece.length} bytes, expected {length}",
                        "ask the lead: the hub does not have the file that it announced",
                    )
                target.write(piece.data)
                target.flush()
            os.fsync(target.fileno())
        with part.open("rb") as source:
            found = hashlib.file_digest(source, "sha256").digest()
        if found != digest:
            part.unlink()
            raise RemoteProtocolError(
                f"the hub sent {format_digest(found)} where it announced {format_digest(digest)}",
                "it was removed; ask the lead, who compares the archive of the study with its digest",
            )
        part.replace(path)

    async def bring(self, content: bytes) -> bytes:
        """Bring a file, from where an earlier call was broken off, and return its SHA-256.

        Args:
            content: the whole, at least one byte.

        Raises:
            FedfairError: nobody answers, the hub refuses, or what arrived is no answer.
        """
        digest, length = hashlib.sha256(content).digest(), len(content)
        held = await self.put(digest, length, 0)
        while held < length:
            before = held
            held = await self.put(digest, length, held, content[held : held + MAX_CHUNK_BYTES])
            if held <= before:
                raise RemoteProtocolError(f"the hub has {held} bytes after it had {before}", "try again")
        return digest

    async def _call(self, request: Request, kind: type[_Answer], seconds: float = 0.0) -> _Answer:
        channel = await self._open()
        method = channel.unary_unary(_METHODS[type(request)], bytes, bytes)
        call = method(
            encode_request(request),
            timeout=CALL_SECONDS + seconds,
            metadata=grpc.aio.Metadata((BINDING_KEY, self._binding)),
        )
        try:
            reply = decode_reply(await carried_out(call, call, self._address))
        except FedfairError:
            await self.close()
            raise
        finally:
            call.cancel()
        if isinstance(reply, HubRefusal):
            # It may be the certificate that is refused, and this side may have another one by now.
            await self.close()
        return _expected(reply, kind)

    async def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            credentials, self._binding = await asyncio.to_thread(self._introduce)
            self._channel = open_channel(self._address, credentials)
        return self._channel

    def _introduce(self) -> tuple[grpc.ChannelCredentials, bytes]:
        identity, address = self._identity(), self._address
        hub = preflight(address.host, address.port, identity, datetime.now(UTC), route=address.route)
        own = identity.participant
        binding = bind_certificate(
            identity.signing_key, fingerprint(identity.certificate), own.federation, own.name
        )
        return channel_credentials(identity, hub), binding


def _expected(reply: Reply, kind: type[_Answer]) -> _Answer:
    if isinstance(reply, HubRefusal):
        if reply.check == LATER:
            raise UnreachableError(reply.words, reply.remedy)
        raise HubRefusalError(reply.check, reply.words, reply.remedy)
    if not isinstance(reply, kind):
        raise RemoteProtocolError(
            f"the hub answers with {type(reply).__name__}, expected {kind.__name__}", "compare the versions"
        )
    return reply
