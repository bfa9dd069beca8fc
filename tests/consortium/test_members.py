"""Who is a member of a federation, and whose word it is."""

import pytest

from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import RIGHTS, MemberRole, Right, parse_consortium
from fedfair.errors import PlanError
from tests.consortium.consortium_makers import ROLES, consortium, listed, public


def test_a_list_says_who_is_a_member_with_which_role_and_key() -> None:
    found = consortium()
    assert (found.federation, found.number, found.host, found.port) == ("heart", 1, "localhost", 8443)
    assert {name: member.role.value for name, member in found.members.items()} == ROLES
    assert found.lead.name == "anna"
    assert found.member("aggregator").role is MemberRole.HUB


def test_comments_and_the_order_of_lines_may_change_and_a_value_may_not() -> None:
    raw = listed()
    assert parse_consortium(b"# of the ethics committee\n" + raw).number == 1
    lines = raw.decode().splitlines(keepends=True)
    assert parse_consortium("".join([*lines[1:3], lines[0], *lines[3:]]).encode()).federation == "heart"
    for old, new in ((b"number: 1", b"number: 2"), (b"observer", b"researcher"), (b"8443", b"8444")):
        with pytest.raises(ConsortiumError) as caught:
            parse_consortium(raw.replace(old, new))
        assert caught.value.check is RecordCheck.SIGNATURE


@pytest.mark.parametrize("signed_by", ["bert", "clinic-a", "aggregator"])
def test_a_list_that_somebody_else_than_its_lead_has_signed_is_none(signed_by: str) -> None:
    with pytest.raises(ConsortiumError) as caught:
        consortium(signed_by=signed_by)
    assert caught.value.check is RecordCheck.SIGNATURE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"roles": {"bert": "researcher"}}, "the lead is nobody"),
        ({"roles": {**ROLES, "bert": "lead"}}, "the lead is anna, bert"),
        ({"roles": {**ROLES, "bert": "king"}}, "must be 'lead'"),
        ({"roles": {"aggregator": "site", "anna": "lead"}}, "reserved"),
        ({"hub": {"host": "localhost", "key": public("anna")}}, "is the key of the hub too"),
        ({"hub": {"host": "localhost", "key": "ed25519:AAAA"}}, "hub.key"),
        ({"number": 0}, "number"),
        ({"format": "fedfair/consortium/2"}, "format"),
    ],
)
def test_a_list_that_is_none_is_refused_in_words(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        listed(**changes)  # type: ignore[arg-type]


def test_a_later_list_counts_where_the_known_lead_has_signed_it() -> None:
    known = consortium()
    later = parse_consortium(listed(number=2, roles={**ROLES, "emil": "observer"}))
    later.check_follows(known)
    with pytest.raises(ConsortiumError) as caught:
        known.check_follows(later)
    assert caught.value.check is RecordCheck.MEMBERS
    usurped = parse_consortium(listed(number=2, roles={**ROLES, "anna": "site", "bert": "lead"}, signed_by="bert"))
    with pytest.raises(ConsortiumError) as caught:
        usurped.check_follows(known)
    assert caught.value.check is RecordCheck.SIGNATURE
    other = parse_consortium(listed(number=2, federation="lung"))
    with pytest.raises(ConsortiumError) as caught:
        other.check_follows(known)
    assert caught.value.check is RecordCheck.FEDERATION


def test_only_the_lead_changes_members_only_sites_decide_and_only_the_hub_drives() -> None:
    def having(right: Right) -> set[MemberRole]:
        return {role for role, rights in RIGHTS.items() if right in rights}

    assert RIGHTS.keys() == set(MemberRole)
    assert having(Right.CHANGE_MEMBERS) == {MemberRole.LEAD}
    assert having(Right.SUBMIT) == {MemberRole.LEAD, MemberRole.RESEARCHER}
    assert having(Right.DECIDE) == having(Right.LEAVE) == having(Right.RESULTS_JOINED) == {MemberRole.SITE}
    assert having(Right.DRIVE) == {MemberRole.HUB}
    assert RIGHTS[MemberRole.OBSERVER] == frozenset()
