"""Checks where the aggregator listens, and whether it can.

gRPC tells a port that is taken from an address of another machine only in its own log. So the address is tried
with a plain socket first, and what is wrong is said in the system's words.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Any

from fedfair.errors import FedfairError

LOOPBACK_ADDRESSES = ("::1", "127.0.0.1")
LOOPBACK = frozenset({"localhost", *LOOPBACK_ADDRESSES})
EVERYWHERE = "::"

TRIES = 10
"""Ports that the system chooses before a name whose addresses share none counts as a fault."""


@dataclass(frozen=True, slots=True)
class Listen:
    """The address to listen on.

    Attributes:
        host: name or address of this machine.
        port: 0 lets the system choose one.
    """

    host: str
    port: int

    @classmethod
    def from_plan(cls, host: str, port: int) -> Listen:
        """Return where to listen so that the plan's address reaches this machine.

        A name that is only this machine stays on this machine; any other address may be a firewall's, which this
        machine does not have, so every interface listens.
        """
        return cls(host if host in LOOPBACK else EVERYWHERE, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def places(self) -> tuple[Listen, ...]:
        """Return every address of this machine that the name stands for; nobody listens there.

        Raises:
            FedfairError: it cannot be listened on; in the system's words.
        """
        # gRPC takes both addresses for what localhost stands for, whatever this machine's list of hosts says.
        names = (self.host, *LOOPBACK_ADDRESSES) if self.host == "localhost" else (self.host,)
        faults: list[OSError] = []
        free: list[Listen] = []
        try:
            found = [place for name in names for place in self._resolved(name)]
        except OSError as error:
            raise self.fault(error) from error
        for family, kind, protocol, _, place in found:
            try:
                _bind(family, kind, protocol, place)
            except OSError as error:
                faults.append(error)
            else:
                free.append(Listen(str(place[0]), self.port))
        # A name such as localhost may have an address that this machine does not; the others are enough.
        taken = [fault for fault in faults if fault.errno in {errno.EADDRINUSE, errno.EACCES}]
        if taken or (len(faults) == len(found) and self.host != EVERYWHERE):
            raise self.fault((taken or faults)[0])
        return (self,) if self.host == EVERYWHERE else tuple(dict.fromkeys(free))

    def _resolved(self, name: str) -> list[Any]:
        return socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)

    def fault(self, error: Exception) -> FedfairError:
        """Return what to tell an operator whose address cannot be used."""
        words = error.strerror if isinstance(error, OSError) else None
        return FedfairError(
            f"cannot listen on {self}: {words or error}",
            "is another aggregator running there? or is that no address of this machine? "
            "choose another with --listen HOST:PORT",
        )


def free_port(host: str) -> int:
    """Return a port that nobody has on any address of a name.

    Somebody else could take it before the aggregator does. On one machine, for a demonstration, a clear failure is
    good enough, and every process can start at once.

    Args:
        host: name or address of this machine.

    Raises:
        FedfairError: it cannot be listened on, or its addresses share no port after some tries.
    """
    for attempt in range(1, TRIES + 1):
        with socket.socket() as probe:
            probe.bind((host, 0))
            found = Listen(host, probe.getsockname()[1])
        try:
            found.places()
        except FedfairError:
            if attempt == TRIES:
                raise
        else:
            break
    return found.port


def _bind(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as probe:
        # As gRPC does: connections of an earlier run that linger on the port are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)
