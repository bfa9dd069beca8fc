"""Checks where the aggregator listens, and whether it can.

gRPC tells a port that is taken from an address of another machine only in its own log. So the address is tried
with a plain socket first, and what is wrong is said in the system's words.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from fedfair.errors import FedfairError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = "::"


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

    def check_free(self) -> None:
        """See that this machine has the address, and that nobody listens there.

        Raises:
            FedfairError: it cannot be listened on; in the system's words.
        """
        faults: list[OSError] = []
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise self.fault(error) from error
        for family, kind, protocol, _, place in found:
            try:
                _bind(family, kind, protocol, place)
            except OSError as error:
                faults.append(error)
        # A name such as localhost may have an address that this machine does not; the others are enough.
        taken = [fault for fault in faults if fault.errno in {errno.EADDRINUSE, errno.EACCES}]
        if taken or (len(faults) == len(found) and self.host != EVERYWHERE):
            raise self.fault((taken or faults)[0])

    def fault(self, error: Exception) -> FedfairError:
        """Return what to tell an operator whose address cannot be used."""
        words = error.strerror if isinstance(error, OSError) else None
        return FedfairError(
            f"cannot listen on {self}: {words or error}",
            "is another aggregator running there? or is that no address of this machine? "
            "choose another with --listen HOST:PORT",
        )


def _bind(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as probe:
        # As gRPC does: connections of an earlier run that linger on the port are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)
