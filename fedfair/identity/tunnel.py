"""A TCP connection to the aggregator for the preflight: directly, or through an HTTP proxy.

Each thing that can go wrong gets its own sentence: the proxy is dead, it wants a user, it does not let this site
through, it cannot reach the aggregator. Which way to go is decided in `fedfair.policy.proxy`.
"""

from __future__ import annotations

import re
import socket
import time

from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, UnreachableError
from fedfair.policy.proxy import Proxy, Route

MAX_REPLY_BYTES = 16_384
"""Of a proxy's answer to CONNECT, which is a status line and a few headers."""

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_LATER = frozenset({408, 425, 429})
"""Statuses below 500 that say "try again later"; from 500 on the proxy did not reach the aggregator."""


def connect(host: str, port: int, route: Route, timeout_seconds: float) -> socket.socket:
    """Return a connection on which the aggregator answers.

    Args:
        host: of the aggregator.
        port: of the aggregator.
        route: directly, or through which proxy.
        timeout_seconds: for each step; also the time limit of the socket that is returned.

    Raises:
        UnreachableError: no host answers; trying again later may help.
        ConnectionRefusedByPeerError: the proxy refuses to connect this site; trying again does not help.
    """
    proxy = route.proxy
    if proxy is None:
        return _opened(host, port, f"{host}:{port}", "is the aggregator started?", timeout_seconds)
    plain = _opened(proxy.host, proxy.port, f"the proxy {proxy}", "is that the proxy's port?", timeout_seconds)
    try:
        _ask_for_tunnel(plain, proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", timeout_seconds)
    except BaseException:
        plain.close()
        raise
    return plain


def _opened(host: str, port: int, place: str, hint: str, timeout_seconds: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=timeout_seconds)
    except (socket.gaierror, UnicodeError) as error:
        raise UnreachableError(f"the host name '{host}' cannot be resolved here") from error
    except ConnectionRefusedError as error:
        raise UnreachableError(f"nothing listens at {place}", hint) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"{place} did not answer within {timeout_seconds:g} s", "a firewall between the two usually does that"
        ) from error
    except OSError as error:
        raise UnreachableError(f"{place} cannot be reached: {error.strerror or error}") from error


def _ask_for_tunnel(plain: socket.socket, proxy: Proxy, place: str, timeout_seconds: float) -> None:
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    try:
        plain.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii"))
        reply = _reply(plain, time.monotonic() + timeout_seconds)
    except TimeoutError as error:
        raise UnreachableError(
            f"the proxy {proxy} did not open a connection to {place} within {timeout_seconds:g} s",
            "is the aggregator started, and may the proxy reach it?",
        ) from error
    except OSError as error:
        raise UnreachableError(f"the proxy {proxy} closed the connection without an answer") from error
    plain.settimeout(timeout_seconds)
    status = _STATUS.match(reply)
    if status is None or not reply.endswith(b"\n"):
        raise UnreachableError(
            f"what listens at {proxy} does not answer like an HTTP proxy", "check the address of the proxy"
        )
    code = int(status.group(1))
    if not 200 <= code < 300:
        raise _refusal(code, proxy, place)


def _reply(plain: socket.socket, deadline: float) -> bytes:
    """Return a proxy's answer up to its empty line, and not one byte of what follows; less if it ends before."""
    reply = bytearray()
    while len(reply) < MAX_REPLY_BYTES and not reply.endswith((b"\r\n\r\n", b"\n\n")):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        plain.settimeout(left)
        byte = plain.recv(1)
        if not byte:
            break
        reply += byte
    return bytes(reply)


def _refusal(code: int, proxy: Proxy, place: str) -> FedfairError:
    if code == 407:
        verb = "does not accept the" if proxy.authorization else "wants a"
        return ConnectionRefusedByPeerError(
            f"the proxy {proxy} {verb} user and password (status 407)",
            "state them in its URL: http://user:password@host:port, with basic authentication",
        )
    if code >= 500 or code in _LATER:
        return UnreachableError(
            f"the proxy {proxy} could not connect to {place} (status {code})",
            "is the aggregator started, and may the proxy reach it?",
        )
    return ConnectionRefusedByPeerError(
        f"the proxy {proxy} does not connect this site to {place} (status {code})",
        f"ask its operator to allow CONNECT to {place}, or list the host in no_proxy",
    )
