"""The page against those who are not logged in, come from elsewhere, or have not read what they approve."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from collaborator.study_review.examination import Examination
from fedfair.consent.approvers import load_approvers
from fedfair.consent.decisions import PersonDecision
from fedfair.consent.inbox import read_decisions, study_folder
from tests.consent import site
from tests.consent.served_page import Answer, ServedPage, Visitor, served

AGE_2 = "/study/age-2"
TO_OPEN = ("study", "policy", "ledger")


@pytest.fixture
def page(home: Path, found: Examination) -> Iterator[ServedPage]:
    with served(home, lambda _config, _plan: found) as running:
        yield running


def read(visitor: Visitor, *parts: str) -> None:
    """Open parts of age-2; the first time, until the records have been looked at."""
    for part in parts:
        while "being looked at" in (answer := visitor.get(f"{AGE_2}/{part}")).text:
            pass
        assert answer.status == 200


def form(visitor: Visitor, home: Path, **changes: str) -> dict[str, str]:
    digest = site.subject_of(study_folder(home, "age-2")).plan_digest
    whole = {"token": visitor.token, "person": "amina", "choice": "approve", "digest": digest}
    return {**whole, "words": "read it", "passphrase": site.PASSWORDS["amina"], **changes}


def decide(visitor: Visitor, home: Path, **changes: str) -> Answer:
    return visitor.post(f"{AGE_2}/decide", form(visitor, home, **changes))


def decisions(home: Path) -> tuple[PersonDecision, ...]:
    folder = study_folder(home, "age-2")
    return read_decisions(folder, load_approvers(home / "approvers.yaml"), site.subject_of(folder))[0]


def test_whoever_has_read_what_differs_approves_with_a_passphrase(page: ServedPage, home: Path) -> None:
    visitor = page.visitor()
    read(visitor, *TO_OPEN)
    answer = decide(visitor, home, words="as discussed on Tuesday")
    assert (answer.status, answer.headers["location"]) == (303, AGE_2)
    (made,) = decisions(home)
    assert (made.person, made.choice, made.words) == ("amina", "approve", "as discussed on Tuesday")
    assert made.parts == TO_OPEN
    assert "approved by amina; 1 more approval is awaited" in visitor.get(AGE_2).text
    # What amina has read, jonas has not.
    other = decide(visitor, home, person="jonas", passphrase=site.PASSWORDS["jonas"])
    assert (other.status, "this login is amina&#39;s" in other.text) == (409, True)
    assert decide(visitor, home, choice="withdraw", words="").status == 409
    assert decide(visitor, home, choice="withdraw", words="a doubt has come up").status == 303
    assert decisions(home)[0].choice == "withdraw"


@pytest.mark.parametrize("left_out", TO_OPEN)
def test_an_approval_waits_for_each_part_that_differs(page: ServedPage, home: Path, left_out: str) -> None:
    visitor = page.visitor()
    read(visitor, *(part for part in TO_OPEN if part != left_out))
    answer = decide(visitor, home)
    assert (answer.status, "not opened in this login" in answer.text) == (409, True)
    # Another login has read it, which counts for that login alone.
    read(page.visitor(), left_out)
    assert decide(visitor, home).status == 409
    assert decisions(home) == ()
    read(visitor, left_out)
    assert decide(visitor, home).status == 303


def test_a_part_that_has_changed_since_is_opened_again(page: ServedPage, home: Path) -> None:
    visitor = page.visitor()
    read(visitor, *TO_OPEN)
    config = home / "collaborator.yaml"
    config.write_text(config.read_text() + "policy: {max_rounds: 500}\n")
    while "being looked at" in visitor.get(AGE_2).text:
        pass
    answer = decide(visitor, home)
    assert (answer.status, "Policy, term by term" in answer.text) == (409, True)
    read(visitor, "policy")
    assert decide(visitor, home).status == 303


def test_a_refusal_needs_words_and_nothing_else(page: ServedPage, home: Path) -> None:
    visitor = page.visitor()
    assert decide(visitor, home, choice="refuse", words=" ").status == 409
    assert decide(visitor, home, choice="refuse", words="not this year").status == 303
    assert [one.choice for one in decisions(home)] == ["refuse"]
    assert "Decide" in visitor.get(AGE_2).text
    assert decide(visitor, home, words="but yes").status == 409


@pytest.mark.parametrize(
    ("path", "method"),
    [("/", "GET"), (AGE_2, "GET"), (f"{AGE_2}/study", "GET"), (f"{AGE_2}/decide", "POST"), ("/logout", "POST")],
)
def test_nobody_sees_or_does_anything_without_a_login(
    page: ServedPage, home: Path, path: str, method: str
) -> None:
    for cookie in ("", "fedfair-inbox=guessed", f"fedfair-inbox={page.links[-1]}"):
        stranger = Visitor(page.port, cookie)
        answer = stranger.get(path) if method == "GET" else stranger.post(path, form(stranger, home))
        assert answer.status == 403
        assert "age-" not in answer.text
    assert decisions(home) == ()


def test_a_link_that_was_used_logs_nobody_in(page: ServedPage) -> None:
    link = f"/login/{page.links[-1]}"
    stranger = Visitor(page.port)
    # Looking at a link, as a mail scanner does, uses nothing up.
    assert stranger.get(link).status == stranger.get(link).status == 200
    assert stranger.post(link, {}).status == 303
    thief = Visitor(page.port)
    assert [thief.get(link).status, thief.post(link, {}).status, thief.get("/").status] == [403, 403, 403]


def test_a_cookie_is_out_of_reach_and_a_login_ends(page: ServedPage) -> None:
    visitor = Visitor(page.port)
    set_cookie = visitor.post(f"/login/{page.links[-1]}", {}).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {word.strip() for word in set_cookie.split(";")}
    visitor.get("/")
    cookie = visitor.cookie
    assert visitor.post("/logout", {"token": visitor.token}).status == 200
    assert Visitor(page.port, cookie).get("/").status == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.169.254"])
def test_a_name_that_is_not_the_pages_is_not_answered(page: ServedPage, host: str) -> None:
    visitor = page.visitor()
    answer = visitor.get("/", Host=host)
    assert (answer.status, "age-" in answer.text) == (421, False)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:1"])
def test_this_machines_own_names_are_answered(page: ServedPage, host: str) -> None:
    assert page.visitor().get("/", Host=host).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_from_another_page_is_refused(page: ServedPage, home: Path, headers: dict[str, str]) -> None:
    visitor = page.visitor()
    answer = visitor.post(f"{AGE_2}/decide", form(visitor, home, choice="refuse"), **headers)
    assert (answer.status, decisions(home)) == (403, ())


@pytest.mark.parametrize("token", ["", "guessed", "é"])
def test_a_form_without_the_token_of_the_login_is_refused(page: ServedPage, home: Path, token: str) -> None:
    visitor = page.visitor()
    assert decide(visitor, home, choice="refuse", token=token).status == 403
    other = page.visitor()
    assert decide(visitor, home, choice="refuse", token=other.token).status == 403
    assert decisions(home) == ()


def test_a_form_that_is_sent_twice_in_one_or_is_too_long_is_refused(page: ServedPage, home: Path) -> None:
    visitor = page.visitor()
    path, stated = f"{AGE_2}/decide", form(visitor, home, choice="refuse")
    twice = "&".join(f"{name}={value}" for name, value in (*stated.items(), ("token", stated["token"])))
    assert visitor.ask("POST", path, twice).status == 403
    assert visitor.post(path, {**stated, "words": "x" * 20_000}).status == 413
    assert visitor.ask("PUT", path).status == 405
    assert decisions(home) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"person": "eve"}, "is none of the people"),
        ({"person": "../../etc/passwd"}, "is none of the people"),
        ({"person": "jonas"}, "does not open with this passphrase"),
        ({"choice": "perhaps"}, "is no decision"),
        ({"digest": "sha256:" + "00" * 32}, "has changed since this page was shown"),
        ({"words": "two\nlines"}, "words of a decision"),
    ],
)
def test_a_wrong_form_decides_nothing(
    page: ServedPage, home: Path, changes: dict[str, str], expected: str
) -> None:
    visitor = page.visitor()
    answer = decide(visitor, home, **{"choice": "refuse", **changes})
    assert (answer.status, expected in answer.text) == (409, True)
    assert decisions(home) == ()


def test_a_passphrase_is_not_guessed(page: ServedPage, home: Path) -> None:
    visitor = page.visitor()
    tried = [decide(visitor, home, choice="refuse", passphrase=f"guess {number}") for number in range(7)]
    wrong = ["does not open with this passphrase" in answer.text for answer in tried]
    assert wrong == [True] * 5 + [False] * 2
    # Not even the right one is tried, in this login or another.
    for someone in (visitor, page.visitor()):
        assert "none is tried for 15 minutes" in decide(someone, home, choice="refuse").text
    assert decisions(home) == ()
    page.clock[0] += 901.0
    assert decide(visitor, home, choice="refuse").status == 303


@pytest.mark.parametrize(
    "path",
    ["/study/..", "/study/%2e%2e", "/study/..%2f..%2fetc", "/study/age-1%2f..%2fage-2", "/study/age-9", "/study/A",
     "/study/age-2/../../people/amina.pem", "/study/age-2/decisions", "/study/%00", "/static/style.css"],
)  # fmt: skip
def test_no_address_leads_out_of_the_inbox(page: ServedPage, path: str) -> None:
    answer = page.visitor().get(path)
    assert answer.status in {404, 409}
    assert "PRIVATE KEY" not in answer.text


def test_every_answer_forbids_scripts_frames_and_keeping(page: ServedPage) -> None:
    visitor = page.visitor()
    for path in ("/", AGE_2, f"{AGE_2}/study", "/nowhere", "/login/x"):
        answer = visitor.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "script" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
        assert "<script" not in answer.text


def test_texts_of_others_stay_texts(home: Path, found: Examination) -> None:
    hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"
    folder = study_folder(home, "age-2")
    (folder.workspace / "src").mkdir()
    (folder.workspace / "src" / "own.py").write_text(hostile)
    plan = yaml.safe_load(folder.plan.read_text())
    plan["task"]["data"]["csv"]["categorical"]["marital"] = [hostile.replace("\u202e", ""), "b"]
    folder.plan.write_text(yaml.safe_dump(plan))
    data = {**found.data, "unused": [hostile], "warnings": [hostile]}
    with served(home, lambda _config, _plan: replace(found, data=data, cost=(hostile,))) as page:
        visitor = page.visitor()
        for part in ("study", "records", "ledger", "code"):
            read(visitor, part)
            text = visitor.get(f"{AGE_2}/{part}").text
            assert "&lt;script&gt;" in text
            assert "<script" not in text
            assert "<img" not in text
            assert "\u202e" not in text


def test_a_study_that_a_start_would_refuse_is_not_approved(home: Path, found: Examination) -> None:
    with served(home, lambda _config, _plan: replace(found, plan_digest="sha256:" + "00" * 32)) as page:
        visitor = page.visitor()
        read(visitor, "study", "policy", "records", "ledger", "code")
        answer = decide(visitor, home)
        assert (answer.status, "what arrived has digest" in answer.text) == (409, True)
        assert decide(visitor, home, choice="refuse").status == 303
