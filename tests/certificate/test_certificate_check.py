"""Anyone who edits a certificate, or claims more than its histogram proves, is caught; by name where possible."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.certificate.check import check_figures, check_model, check_plan
from fedfair.certificate.document import Certificate, Population, parse_certificate, to_text
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.seal import seal, verify_seal
from fedfair.errors import CertificateError, FedfairError
from fedfair.fairness.metrics import uniform_classifier_loss
from fedfair.plan.schema import SecureAggregationSection
from tests.certificate.certificate_makers import (
    KEY,
    MODEL_DIGEST,
    NOW,
    PLAN_DIGEST,
    SPEC,
    make_certificate,
    make_plan,
    make_record,
    make_sealed,
    some_losses,
)

Document = dict[str, object]


def check_all(raw: bytes) -> None:
    """Do what `fedfair certificate verify` does, with the right key, plan and model at hand."""
    certificate = parse_certificate(raw, "certificate.json")
    check_figures(certificate)
    verify_seal(certificate, KEY.public_key())
    check_plan(certificate, make_plan(), PLAN_DIGEST)
    check_model(certificate, MODEL_DIGEST)


def test_a_certificate_that_nobody_touched_passes() -> None:
    check_all(to_text(make_sealed()).encode())


def _places(value: object, place: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    if isinstance(value, dict):
        return [deeper for key, item in value.items() for deeper in _places(item, (*place, key))]
    if isinstance(value, list):
        return [deeper for key, item in enumerate(value) for deeper in _places(item, (*place, key))]
    return [place]


def _changed(value: object) -> object:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return np.nextafter(value, 1e9)  # The smallest change that there is.
    assert isinstance(value, str)
    return value[:-1] + ("0" if value[-1] != "0" else "1")


def test_the_smallest_change_of_any_field_is_refused() -> None:
    original = json.loads(to_text(make_sealed(some_losses(60))))
    places = _places(original)
    assert len(places) > 40
    for place in places:
        document = json.loads(json.dumps(original))
        inner = document
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = _changed(inner[place[-1]])
        raw = (json.dumps(document, indent=1) + "\n").encode()
        with pytest.raises(FedfairError):
            check_all(raw)


def edited(change: Callable[[Document], object]) -> Certificate:
    """Return a certificate whose issuer has changed it before signing: only its figures can give it away."""
    document = json.loads(to_text(make_certificate()))
    change(document)
    return seal(Certificate.model_validate_json(json.dumps(document)), "aggregator", KEY)


def _set(*place: object, to: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        inner = document
        for key in place[:-1]:
            inner = inner[key]  # type: ignore[index,assignment]
        inner[place[-1]] = to  # type: ignore[index]

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_set("statements", 1, "population", to=0.5), "at group size 0.1 the population bound is 0.5"),
        (_set("statements", 1, "population", to=None), "at group size 0.1 the population bound is None"),
        (_set("statements", 2, "sample", 1, to=0.3), "at group size 0.3 the sample interval is"),
        (_set("statements", 0, "group_size", to=0.06), "at group size 0.06"),
        (_set("statements", 0, "group_size", to=0.1), "the group sizes do not increase"),
        (_set("population", "delta", to=0.001), "the population bound is"),
        (_set("population", "method", to="dkw"), "the population bound is"),
        (_set("population", to=None), "the population bound is"),
        (_set("split", to="train"), "drawn from training records"),
        (_set("n", to=999), "n is 999, the histogram holds 1000"),
        (_set("mean", to=0.1), "mean is 0.1"),
        (_set("uniform_floor", to=5.0), "guessing among 2 costs 0.693"),
        (_set("classes", to=3), "guessing among 3 costs 1.09"),
        (_set("loss_range", to=2.0), "proves nothing: .* a sum that its count and edges do not allow"),
        (_set("loss_range", to=4.5), "proves nothing: .* a sum that its count and edges do not allow"),
        (_set("histogram", "bins", to=640), "a sum that its count and edges do not allow"),
        (_set("histogram", "fewest", to=400), "a bin holds fewer than 400 losses"),
        (_set("histogram", "counts", 0, to=1), "a sum that its count and edges do not allow"),
        (_set("histogram", "counts", -1, to=20), "proves nothing"),
        (_set("histogram", "counts", 0, to=2**70), "proves nothing: a histogram counts"),
        (_set("histogram", "sums", 0, to=0.0), "mean is"),
        (_set("histogram", "sums", 0, to=1e9), "a sum that its count and edges do not allow"),
        (_set("histogram", "starts", 1, to=900), "proves nothing: the bins of a histogram"),
        (_set("histogram", "starts", to=[0]), "proves nothing: a histogram has 1 edges"),
    ],
)
def test_even_its_issuer_cannot_claim_more_than_the_histogram_proves(
    change: Callable[[Document], None], fault: str
) -> None:
    with pytest.raises(CertificateError, match=fault):
        check_figures(edited(change))


def test_all_faults_are_told_together() -> None:
    def two(document: Document) -> None:
        _set("mean", to=9.0)(document)
        _set("statements", 3, "population", to=0.0)(document)

    with pytest.raises(CertificateError, match=r"mean is 9\.0.*; at group size 1\.0"):
        check_figures(edited(two))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=60), st.integers(1, 30), st.floats(1e-6, 0.5))
def test_whatever_was_issued_passes(losses: list[float], fewest: int, delta: float) -> None:
    terms = IssueTerms("test", (0.01, 0.5, 1.0), delta=delta, fewest=fewest)
    made = draft(make_record(test=np.array(losses)), make_plan(), terms, issued_at=NOW)
    check_all(to_text(seal(made, "aggregator", KEY)).encode())


def test_another_key_does_not_pass_for_the_issuer_s() -> None:
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(CertificateError, match="was issued with the key ed25519:"):
        verify_seal(make_sealed(), other.public_key())
    # Nor when the impostor writes the issuer's key into a certificate that it signs itself.
    own, forged = make_sealed(), seal(make_certificate(), "aggregator", other)
    mixed = own.model_copy(update={"signature": forged.signature})
    with pytest.raises(CertificateError, match="does not cover this certificate"):
        verify_seal(mixed, KEY.public_key())
    swapped = forged.model_copy(update={"issuer": own.issuer})
    with pytest.raises(CertificateError, match="does not cover this certificate"):
        verify_seal(swapped, KEY.public_key())


def test_an_unsigned_certificate_is_nobody_s() -> None:
    with pytest.raises(CertificateError, match="not signed: anybody could have written it"):
        verify_seal(make_certificate(), KEY.public_key())
    half = make_sealed().model_copy(update={"signature": None})
    with pytest.raises(CertificateError, match="not signed"):
        verify_seal(half, KEY.public_key())


def test_a_signature_for_something_else_does_not_pass() -> None:
    other = base64.b64encode(KEY.sign(b"fedfair/approval/v1")).decode()
    with pytest.raises(CertificateError, match="does not cover this certificate"):
        verify_seal(make_sealed().model_copy(update={"signature": other}), KEY.public_key())


def test_another_model_or_plan_is_named() -> None:
    sealed = make_sealed()
    with pytest.raises(CertificateError, match=f"about the model {MODEL_DIGEST}, this model is sha256:ff"):
        check_model(sealed, "sha256:" + "ff" * 32)
    with pytest.raises(CertificateError, match=f"about the plan {PLAN_DIGEST}, this plan is sha256:ff"):
        check_plan(sealed, make_plan(), "sha256:" + "ff" * 32)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_set("federation", to="lungs"), "federation lungs, the plan says heart"),
        (_set("training", "worst_group_size", to=0.01), "worst_group_size 0.01, the plan says 0.1"),
        (_set("training", "tradeoff", to=0.5), "tradeoff 0.5, the plan says"),
        (_set("training", "algorithm", to="fedavg"), "algorithm fedavg, the plan says fedsrcvar"),
        (_set("privacy", to="(epsilon 1, delta 1e-5)"), "privacy .*, the plan says none"),
        (_set("histogram", "bins", to=65), "bins 65, the plan says 64"),
        (_set("loss_range", to=3.5), r"loss_range 3\.5, the plan says 4\.0"),
        (_set("participants", to=3), "says 3 sites, the plan names 2"),
        (_set("round", to=4), "about round 4, the plan trains 3"),
    ],
)
def test_a_certificate_that_says_something_else_than_its_plan_is_refused(
    change: Callable[[Document], None], fault: str
) -> None:
    with pytest.raises(CertificateError, match=fault):
        check_plan(edited(change), make_plan(), PLAN_DIGEST)


def test_a_certificate_about_fewer_people_than_the_plan_allows_is_refused() -> None:
    with pytest.raises(CertificateError, match="tells of as few as 10 people, the plan allows 11 at least"):
        check_plan(make_sealed(), make_plan(min_group=11), PLAN_DIGEST)


def test_sums_that_the_plan_does_not_mask_were_not_masked() -> None:
    open_plan = make_plan().model_copy(update={"secure_aggregation": SecureAggregationSection(mode="off")})
    with pytest.raises(CertificateError, match="says that sums were masked, the plan says they were not"):
        check_plan(make_sealed(), open_plan, PLAN_DIGEST)


def test_validation_records_that_chose_the_model_speak_for_nobody_else() -> None:
    terms = IssueTerms("validation", (0.1,))
    honest = draft(make_record(validation=some_losses()), make_plan(), terms, issued_at=NOW)
    assert honest.population is None
    population = Population(method="binomial", delta=0.05, mixture="evaluated records", weights=None)
    claimed = honest.model_copy(update={"population": population})
    with pytest.raises(CertificateError, match="chose the model by the validation records"):
        check_plan(claimed, make_plan(), PLAN_DIGEST)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text + " ",
        lambda text: text.replace('"n": ', '"n":  '),
        lambda text: text.replace('{\n "format"', '{\n "n": 5,\n "format"', 1),
        lambda text: text.replace('"masked": true', '"masked": true, "extra": 1'),
        lambda text: text.replace("fedfair/certificate/2", "fedfair/certificate/1"),
        lambda text: text.replace('"mean": 0', '"mean": "0'),
        lambda text: text.replace('"split": "test"', '"split": "all"'),
        lambda text: text.replace('"federation": "heart"', '"federation": "he\\u001bart"'),
        lambda text: text[: len(text) // 2],
        lambda text: "[" * len(text),
        lambda text: text.replace('"n": 1000', '"n": NaN'),
        lambda text: text + " " * (1 << 20),
    ],
)
def test_a_file_that_is_not_spelt_as_it_was_made_is_refused(spoil: Callable[[str], str]) -> None:
    text = to_text(make_sealed())
    spoilt = spoil(text)
    assert spoilt != text
    with pytest.raises(CertificateError, match="certificate"):
        parse_certificate(spoilt.encode(), "certificate.json")


def test_the_uniform_floor_is_the_loss_of_guessing() -> None:
    assert make_certificate().uniform_floor == uniform_classifier_loss(2)
    assert make_certificate().loss_range == SPEC.loss_range
