import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.errors import FedfairError, IdentityError
from fedfair.identity.roster import bind_certificate, parse_roster, verify_binding
from fedfair.identity.signing import format_signing_key, parse_signing_key
from fedfair.ids import FederationName, ParticipantId
from fedfair.signed_message import labelled_message
from tests.identity.identity_makers import HEART

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CLINIC = ParticipantId("clinic-a")
PRINT = bytes(range(32))
FIELDS = st.lists(st.binary(max_size=8), max_size=4)
BINDING = bind_certificate(KEY, PRINT, HEART, CLINIC)


def verify(
    binding: bytes = BINDING,
    key: Ed25519PrivateKey = KEY,
    fingerprint: bytes = PRINT,
    federation: FederationName = HEART,
    name: ParticipantId = CLINIC,
) -> None:
    verify_binding(
        binding, public_key=key.public_key(), certificate_fingerprint=fingerprint, federation=federation, name=name
    )


def test_a_member_s_own_binding_verifies_and_is_the_same_each_time() -> None:
    verify()
    assert (len(BINDING), bind_certificate(KEY, PRINT, HEART, CLINIC)) == (64, BINDING)


def test_the_bytes_that_a_binding_signs_are_the_documented_ones() -> None:
    message = (
        b"fedfair/certificate-binding/v1\x00"
        b"\x00\x00\x00\x03"
        b"\x00\x00\x00\x20" + PRINT + b"\x00\x00\x00\x05heart"
        b"\x00\x00\x00\x08clinic-a"
    )
    assert KEY.sign(message) == BINDING


@pytest.mark.parametrize(
    "change",
    [
        {"key": Ed25519PrivateKey.from_private_bytes(bytes(32))},
        {"fingerprint": bytes(32)},
        {"federation": FederationName("lungs")},
        {"name": ParticipantId("clinic-b")},
    ],
    ids=["another key", "another certificate", "another federation", "another member"],
)
def test_a_binding_is_good_for_one_key_certificate_federation_and_member(change: dict[str, object]) -> None:
    with pytest.raises(IdentityError, match="has not bound"):
        verify(**change)  # type: ignore[arg-type]  # each case names one parameter


@pytest.mark.parametrize("length", [0, 63, 65, 4096])
def test_a_binding_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(IdentityError, match=f"has {length} bytes, expected 64"):
        verify(bytes(length))


@settings(deadline=None, max_examples=30)
@given(first=FIELDS, second=FIELDS)
@example(first=[b"clinic", b"a"], second=[b"clin", b"ica"])
@example(first=[b"", b"a"], second=[b"a", b""])
def test_two_lists_of_fields_never_give_the_same_message(first: list[bytes], second: list[bytes]) -> None:
    assert (labelled_message("label", first) == labelled_message("label", second)) == (first == second)


def test_a_roster_gives_each_member_its_key() -> None:
    roster = parse_roster({"clinic-a": format_signing_key(KEY.public_key())})
    assert {name: key.public_bytes_raw() for name, key in roster.items()} == {
        CLINIC: KEY.public_key().public_bytes_raw()
    }


def test_two_members_with_one_key_are_refused() -> None:
    text = format_signing_key(KEY.public_key())
    with pytest.raises(IdentityError, match="gives clinic-a and clinic-b the same signing key"):
        parse_roster({"clinic-a": text, "clinic-b": text})


def test_the_aggregator_is_no_member_of_the_roster() -> None:
    with pytest.raises(FedfairError, match="'aggregator' is reserved"):
        parse_roster({"aggregator": format_signing_key(KEY.public_key())})


@pytest.mark.parametrize(
    "text",
    ["", "ed25519:", "ed25519:AAAA", "rsa:" + "A" * 43 + "=", "ed25519:" + "A" * 43, "ed25519:" + "A" * 42 + "B="],
    ids=["empty", "no key", "short", "another kind", "no padding", "second spelling"],
)
def test_a_key_that_is_not_spelt_canonically_is_refused(text: str) -> None:
    with pytest.raises(IdentityError):
        parse_signing_key(text)
