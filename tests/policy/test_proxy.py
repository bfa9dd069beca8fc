"""Which connection goes through a proxy, and what is said about it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.policy.proxy import MAX_URL, Proxy, choose_route, covers, is_this_machine, parse_proxy
from fedfair.policy.site_config import load_site_config

HOST = "aggregator.example.org"
SECRET = "Tr0ub4dor"  # noqa: S105 - a test looks for it where it must not be
ENVIRONMENT = {"https_proxy": f"http://site:{SECRET}@proxy:3128"}


def words(host: str = HOST, setting: str = "environment", port: int = 8443, **environment: str) -> str:
    return choose_route(host, port, setting, environment).words


@pytest.mark.parametrize(
    ("setting", "environment", "expected"),
    [
        ("environment", {}, "directly; no proxy is set"),
        ("environment", {"https_proxy": " "}, "directly; no proxy is set"),
        ("environment", {"http_proxy": "http://proxy:1", "grpc_proxy": "proxy"}, "directly; no proxy is set"),
        ("environment", ENVIRONMENT, "through proxy http://proxy:3128 from https_proxy"),
        ("environment", {"HTTPS_PROXY": "proxy"}, "through proxy http://proxy:80 from HTTPS_PROXY"),
        ("environment", {**ENVIRONMENT, "HTTPS_PROXY": "x:1"}, "through proxy http://proxy:3128 from https_proxy"),
        ("none", ENVIRONMENT, "directly; network.proxy is none"),
        ("http://[fd00::1]:8080/", ENVIRONMENT, "through proxy http://[fd00::1]:8080 from network.proxy"),
        (
            "environment",
            {**ENVIRONMENT, "no_proxy": "10.0.0.0/8, .example.org"},
            "directly; https_proxy is set but no_proxy lists '.example.org'",
        ),
        ("http://proxy:3128", {"NO_PROXY": "*"}, "directly; network.proxy is set but NO_PROXY lists '*'"),
        ("environment", {**ENVIRONMENT, "no_proxy": "org.de"}, "through proxy http://proxy:3128 from https_proxy"),
    ],
)
def test_the_route_follows_from_setting_and_environment(
    setting: str, environment: dict[str, str], expected: str
) -> None:
    assert choose_route(HOST, 8443, setting, environment).words == expected


@pytest.mark.parametrize("setting", ["environment", "http://proxy:3128"])
@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "127.1", "::1", "::ffff:127.0.0.1"],
)
def test_this_machine_is_never_reached_through_a_proxy(setting: str, host: str) -> None:
    route = choose_route(host, 8443, setting, ENVIRONMENT)
    assert route.proxy is None
    assert route.words.endswith(f"is set but {host} is this machine")


def test_other_machines_are_not_taken_for_this_one() -> None:
    for host in ("localhost.example.org", "mylocalhost", "128.0.0.1", "127.example.org", "::2", "10.0.0.1"):
        assert not is_this_machine(host)


@pytest.mark.parametrize(
    ("exception", "host", "covered"),
    [
        ("*", "anything", True), ("", HOST, False), (".", HOST, False), ("example.org", "example.org", True),
        ("example.org", HOST, True), ("example.org", "badexample.org", False), (".example.org", HOST, True),
        ("*.example.org", HOST, True), ("EXAMPLE.org.", "Aggregator.Example.ORG.", True),
        ("example.org:8443", HOST, True), ("example.org:443", HOST, False), ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.30", False), ("10.1.2.3:8443", "10.1.2.3", True),
        ("10.0.0.0/8", "10.1.2.3", True), ("10.1.2.99/24", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False), ("10.0.0.0/8", HOST, False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True), ("fd00::/8", "fd00::7", True), ("fd00::7", "fd00:0::7", True),
        ("[fd00::7]:8443", "fd00::7", True), ("[fd00::7]:443", "fd00::7", False), ("2.3", "10.1.2.3", False),
        ("a/b", HOST, False),
    ],
)  # fmt: skip
def test_an_item_of_no_proxy_covers_what_curl_and_go_say(exception: str, host: str, covered: bool) -> None:
    assert covers(exception, host, 8443) is covered


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        (f"socks5://u:{SECRET}@proxy:1080", "a proxy of the kind 'socks5'; only http is supported"),
        (f"https://u:{SECRET}@proxy:3128", "a proxy of the kind 'https'; only http is supported"),
        (f"http://u:{SECRET}@proxy:0", "its port is not 1 to 65535"),
        (f"http://u:{SECRET}@proxy:99999", "its port is not 1 to 65535"),
        (f"http://u:{SECRET}@proxy:", "its port is not 1 to 65535"),
        (f"http://u:{SECRET}/x", "its port is not 1 to 65535"),
        (f"http://u:{SECRET}@", "it has no valid host name"),
        (f"http://u:{SECRET}@a b:1", "it has no valid host name"),
        (f"http://u:{SECRET}@[fd00::g]:1", "it has no valid host name"),
        (f"http://u:{SECRET}@p\r\nEvil: 1", "it has no valid host name"),
        ("http://u:" + SECRET * MAX_URL + "@proxy:1", f"at most {MAX_URL}"),
    ],
)
def test_what_is_no_http_proxy_is_refused_without_its_password(url: str, fault: str) -> None:
    with pytest.raises(PlanError) as caught:
        choose_route(HOST, 8443, "environment", {"https_proxy": url})
    assert fault in caught.value.message
    assert "https_proxy" in caught.value.message
    assert SECRET not in caught.value.diagnostics()


def test_credentials_are_decoded_for_the_proxy_and_shown_to_nobody() -> None:
    proxy = parse_proxy(f"http://si%40te:{SECRET}%3a@proxy:3128", "https_proxy")
    assert proxy == Proxy("proxy", 3128, f"si@te:{SECRET}:")
    # base64 of the text before it, from the tests of RFC 7617's own scheme.
    assert Proxy("p", 1, "Aladdin:open sesame").authorization == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert SECRET not in f"{proxy} {proxy!r} {choose_route(HOST, 1, 'environment', ENVIRONMENT)!r}"


@given(
    host=st.one_of(st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,3}", fullmatch=True), st.ip_addresses().map(str)),
    setting=st.sampled_from(["none", "environment", "http://other:1"]),
    exceptions=st.lists(st.sampled_from([HOST, ".org", "10.0.0.0/8", "*", "::/0", ""])),
)
def test_every_route_is_direct_or_by_proxy_and_says_which(host: str, setting: str, exceptions: list[str]) -> None:
    route = choose_route(host, 8443, setting, {**ENVIRONMENT, "no_proxy": ",".join(exceptions)})
    excepted = is_this_machine(host) or any(covers(item, host, 8443) for item in exceptions)
    assert (route.proxy is None) == (setting == "none" or excepted)
    assert route.words.startswith("directly; " if route.proxy is None else f"through proxy {route.proxy} from ")
    assert SECRET not in route.words


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (
            f"socks5://u:{SECRET}@proxy:1",
            "collaborator.yaml:2: network.proxy: the value names a proxy of the kind",
        ),
        (f"http://u:{SECRET}@:1", "network.proxy: the value is not the URL of a proxy: it has no valid host name"),
        ("http://u:" + SECRET * MAX_URL + "@proxy:1", "network.proxy: the value: the URL of the proxy has"),
        ("NONE", "network.proxy: the value is neither none, environment nor the URL of a proxy"),
        ("off-please", "network.proxy: the value is neither none, environment nor the URL of a proxy"),
        (
            "http://proxy:3128/path",
            "network.proxy: the value is not the URL of a proxy: it continues after the port",
        ),
        ("null", "network.proxy: must be a text, found null"),
        ("", "network.proxy: must be a text, found null"),
    ],
)
def test_a_proxy_in_the_sites_own_file_is_checked_and_not_repeated(tmp_path: Path, value: str, fault: str) -> None:
    file = tmp_path / "collaborator.yaml"
    file.write_text(f"collaborator: clinic-a\nnetwork: {{proxy: {value}}}\n", encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        load_site_config(file)
    assert fault in caught.value.message
    assert SECRET not in caught.value.diagnostics()


def test_a_sites_file_keeps_its_proxy_and_hides_it_from_whoever_prints_it(tmp_path: Path) -> None:
    file, url = tmp_path / "collaborator.yaml", ENVIRONMENT["https_proxy"]
    file.write_text(f"collaborator: clinic-a\nnetwork: {{proxy: '{url}'}}\n", encoding="utf-8")
    site = load_site_config(file)
    assert site.network.proxy == url
    assert SECRET not in f"{site!r}{site}"
