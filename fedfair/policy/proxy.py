"""Decides whether a site reaches the aggregator directly or through an HTTP proxy, and says why.

One rule for every connection of a site: the connection that looks at the aggregator first, and gRPC's own. It is a
function of its arguments; its caller has read the environment. Both connections are TLS from end to end, so
the proxy is asked for a tunnel (CONNECT) and sees only host name, port and ciphertext.

Source: RFC 9110, section 9.3.6 (CONNECT) and 11.7.1 (Proxy-Authorization); RFC 7617 (basic). No standard says what
`no_proxy` means; this is what curl and Go agree on, and a leading dot or `*.` changes nothing.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from fedfair.errors import PlanError

NONE = "none"
ENVIRONMENT = "environment"
SETTING = "network.proxy"

PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY")
"""The first one that is not empty counts. `http_proxy` is for connections without TLS; a site makes none."""

EXCEPTION_VARIABLES = ("no_proxy", "NO_PROXY")
"""The first one that is not empty counts."""

MAX_URL = 1000
"""Characters of a proxy's URL."""

_REMEDY = "write it like http://proxy.example.org:3128, or http://user:password@proxy.example.org:3128"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?")
_DEFAULT_PORT = 80

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; its text never holds the password.

    Attributes:
        host: name or address, an IPv6 address without brackets.
        port: 1 to 65535.
        credentials: "user:password", or empty.
    """

    host: str
    port: int
    credentials: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """Return HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authorization(self) -> str:
        """Return the value of `Proxy-Authorization`, or nothing where the proxy's URL names no user."""
        if not self.credentials:
            return ""
        return "Basic " + base64.b64encode(self.credentials.encode("utf-8")).decode("ascii")

    def __str__(self) -> str:
        return f"http://{self.place}"


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a connection.

    Attributes:
        proxy: what it goes through; None where it goes directly.
        words: the same for a person, with the reason; "directly; no proxy is set".
    """

    proxy: Proxy | None
    words: str


DIRECT = Route(None, "directly")
"""The route of those who never asked for one, such as a test."""


def choose_route(host: str, port: int, setting: str, environment: Mapping[str, str]) -> Route:
    """Return how a site connects to an address.

    Args:
        host: name or IP address of the aggregator, an IPv6 address without brackets.
        port: 1 to 65535.
        setting: `network.proxy` of the site's file: "none", "environment" or the URL of a proxy.
        environment: the variables of the process.

    Returns:
        The route. This machine itself is never reached through a proxy, and neither is what `no_proxy` lists,
        wherever the proxy was named.

    Raises:
        PlanError: a proxy is needed here, and its URL is not that of an HTTP proxy.
    """
    if setting == NONE:
        return Route(None, f"directly; {SETTING} is {NONE}")
    source, url = SETTING, setting
    if setting == ENVIRONMENT:
        source, url = _first(PROXY_VARIABLES, environment)
        if not url:
            return Route(None, "directly; no proxy is set")
    if is_this_machine(host):
        return Route(None, f"directly; {source} is set but {host} is this machine")
    variable, exceptions = _first(EXCEPTION_VARIABLES, environment)
    for exception in re.split(r"[\s,]+", exceptions):
        if covers(exception, host, port):
            return Route(None, f"directly; {source} is set but {variable} lists {exception!r}")
    proxy = parse_proxy(url, source)
    return Route(proxy, f"through proxy {proxy} from {source}")


def parse_proxy(url: str, source: str) -> Proxy:
    """Return the proxy that a URL names; without a scheme it is http, without a port 80.

    In a file a single word is more likely meant for `none` than for the name of a machine, so it is refused.

    Args:
        url: as a person wrote it; it may hold a password, so that no message repeats it.
        source: where it was found, for the message.

    Raises:
        PlanError: it is not the URL of an HTTP proxy.
    """
    if len(url) > MAX_URL:
        raise PlanError(f"{source}: the URL of the proxy has {len(url)} characters, at most {MAX_URL}", _REMEDY)
    scheme = _SCHEME.match(url)
    if scheme is not None and scheme.group(1).lower() != "http":
        raise PlanError(
            f"{source} names a proxy of the kind '{scheme.group(1).lower()}'; only http is supported",
            f"{_REMEDY}; the tunnel through it is encrypted from end to end",
        )
    if scheme is None and source not in PROXY_VARIABLES and not set(url) & set(":.@"):
        raise PlanError(f"{source} is neither {NONE}, {ENVIRONMENT} nor the URL of a proxy", _REMEDY)
    authority = url[scheme.end() if scheme is not None else 0 :].removesuffix("/")
    credentials, _, place = authority.rpartition("@")
    host, port = _host_and_port(place)
    if host is None:
        raise PlanError(f"{source} is not the URL of a proxy: it has no valid host name", _REMEDY)
    if port is None and None not in _host_and_port(place.partition("/")[0]):
        raise PlanError(f"{source} is not the URL of a proxy: it continues after the port", _REMEDY)
    if port is None:
        raise PlanError(f"{source} is not the URL of a proxy: its port is not 1 to 65535", _REMEDY)
    return Proxy(host, port, unquote(credentials))


def is_this_machine(host: str) -> bool:
    """Return whether a name or address can only mean the machine that uses it; nothing is looked up."""
    name = host.lower().removesuffix(".")
    address = _address(name)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    # Resolvers take 127.1 for 127.0.0.1.
    return name == "localhost" or name.endswith(".localhost") or re.fullmatch(r"127(\.[0-9]+)+", name) is not None


def covers(exception: str, host: str, port: int) -> bool:
    """Return whether one item of `no_proxy` covers an address.

    Args:
        exception: "*" for everything; a domain, which covers its subdomains; an IP address; a network in CIDR
            notation. A domain or an address may have a port of its own. Empty covers nothing.
        host: a name or an IP address, without brackets.
        port: 1 to 65535.
    """
    if exception == "*":
        return True
    network = _network(exception)
    if network is not None:
        address = _address(host)
        return address is not None and address.version == network.version and address in network
    stated, _, number = exception.rpartition(":")
    if stated and number.isdecimal() and _address(exception) is None:
        return int(number) == port and covers(stated, host, port)
    wanted = exception.lower().removeprefix("[").removesuffix("]")
    if (address := _address(host)) is not None:
        return address == _address(wanted)
    domain = wanted.removeprefix("*").removeprefix(".").removesuffix(".")
    name = host.lower().removesuffix(".")
    return bool(domain) and (name == domain or name.endswith(f".{domain}"))


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the first variable that is not empty, with its value; the last one where all are."""
    for name in names:
        value = environment.get(name, "").strip()
        if value:
            return name, value
    return names[-1], ""


def _host_and_port(place: str) -> tuple[str | None, int | None]:
    """Return the host and the port of a URL's authority; None for what is not valid."""
    if place.startswith("["):
        inside, closed, rest = place[1:].partition("]")
        host = inside if closed and _address(inside) is not None else None
        colon, number = rest[:1], rest[1:]
    else:
        inside, colon, number = place.partition(":")
        host = inside if _HOST.fullmatch(inside) else None
    if not colon:
        return host, _DEFAULT_PORT
    valid = number.isascii() and number.isdecimal() and len(number) <= 5 and 1 <= int(number) <= 65535
    return host, int(number) if colon == ":" and valid else None


def _address(text: str) -> _IPAddress | None:
    """Return the IP address that a text is, an IPv4 address inside IPv6 as the former; None for a name."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
