"""Anyone who edits a certificate, or claims more than its histogram proves, is caught; by name where possible."""

import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.evaluation_file import EvaluationRecord, split_sums
from fedfair.aggregation.evaluation_sums import evaluation_layout
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, loss_block
from fedfair.certificate.check import check_figures, check_model, check_plan
from fedfair.certificate.document import (
    Certificate,
    CertifiedVerdict,
    Outcomes,
    Population,
    Statement,
    parse_certificate,
    to_text,
)
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.certificate.seal import seal, verify_seal
from fedfair.certificate.sentences import in_words
from fedfair.certificate.verdict import certified_verdict
from fedfair.errors import CertificateError, FedfairError, PlanError
from fedfair.fairness.population_bounds import MAX_DELTA, METHODS, MIN_DELTA, MIN_GROUP_SIZE
from fedfair.plan.sections import SecureAggregationSection
from tests.certificate.certificate_makers import (
    CLASSES,
    KEY,
    MODEL_DIGEST,
    NOW,
    PLAN_DIGEST,
    make_certificate,
    make_plan,
    make_record,
    make_sealed,
    some_losses,
)
from tests.oracles.header_places import evaluation_header_length, split_header

Document = dict[str, object]


def check_all(raw: bytes) -> None:
    """Do what `fedfair certificate verify` does, with the right key, plan and model at hand."""
    certificate = parse_certificate(raw, "certificate.json")
    check_figures(certificate)
    verify_seal(certificate, KEY.public_key())
    check_plan(certificate, make_plan(), PLAN_DIGEST)
    check_model(certificate, MODEL_DIGEST)


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
def test_even_its_issuer_cannot_claim_more_than_is_proven(change: Callable[[Document], None], fault: str) -> None:
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
def test_a_certificate_that_contradicts_its_plan_is_refused(
    change: Callable[[Document], None], fault: str
) -> None:
    with pytest.raises(CertificateError, match=fault):
        check_plan(edited(change), make_plan(), PLAN_DIGEST)


def test_a_certificate_says_what_is_measured_under_a_plan_that_does_not_say() -> None:
    plan = make_plan().with_(objective={"measure": None})
    check_plan(make_certificate(plan=plan), plan, PLAN_DIGEST)
    with pytest.raises(CertificateError, match="measure loss, the plan says excess"):
        check_plan(make_certificate(), plan, PLAN_DIGEST)


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


# ---- a certificate says whether its model may be used, by its own figures alone, and a checker computes it again

LOG2 = math.log(2)
Matrix = Sequence[Sequence[int]]


def record(losses: Sequence[float], matrix: Matrix) -> EvaluationRecord:
    made = make_record(test=np.array(losses))
    correct = sum(row[place] for place, row in enumerate(matrix))
    confusion = tuple(tuple(row) for row in matrix)
    sums = made.splits["test"].model_copy(update={"confusion": confusion, "correct": correct})
    return made.model_copy(update={"splits": {"test": sums}})


def certificate(losses: Sequence[float], matrix: Matrix, fewest: int = 10) -> Certificate:
    terms = IssueTerms(split="test", group_sizes=(0.1, 0.5, 1.0), fewest=fewest)
    return draft(record(losses, matrix), make_plan(), terms, issued_at=NOW)


def statement(lower: float) -> Statement:
    return Statement(group_size=0.1, sample=(lower, lower + 0.1), population=None)


# Of 200 people 180 say no; guessing costs 0.693, and so does the best prediction for the worst tenth.
BAD = certificate([0.5] * 160 + [1.5] * 40, [[120, 60], [10, 10]])
GOOD = certificate([0.1] * 180 + [0.5] * 20, [[170, 10], [10, 10]])


def test_the_verdict_follows_from_the_figures_by_hand() -> None:
    assert BAD.outcomes == Outcomes(counts=(180, 20), correct=130)
    # The worst tenth has 1.5; 65 % of the predictions are right, and 90 % of "no".
    assert BAD.verdict == CertifiedVerdict(
        state="worse", above_uniform_guess=True, above_best_constant=True, below_majority=True
    )
    assert in_words(BAD).verdict == (
        "Do not use this model as it is: the worst-off 10% of the evaluated people fare worse than by guessing "
        "and the best constant prediction, and fewer predictions are right than by always naming the most "
        "frequent class."
    )
    assert GOOD.verdict.state == "fine"
    assert in_words(GOOD).verdict == (
        "No figure here shows the model worse than guessing, the best constant prediction and the most frequent "
        "class; the model before training was not compared."
    )


@pytest.mark.parametrize(("lower", "state"), [(LOG2, "fine"), (LOG2 + 0.0009, "fine"), (LOG2 + 0.0011, "worse")])
def test_only_the_lower_end_of_the_interval_is_a_fault(lower: float, state: str) -> None:
    assert certified_verdict(statement(lower), LOG2, None).state == state


@pytest.mark.parametrize("matrix", [[[180, 5], [10, 5]], [[100, 60], [20, 20]], [[175, 5], [3, 17]]])
def test_outcomes_that_tell_of_too_few_people_are_not_published(matrix: Matrix) -> None:
    # 15 of a class are fewer than 20; 80 wrong and 120 right are enough; 8 wrong are not.
    made, enough = certificate([0.1] * 180 + [0.5] * 20, matrix, fewest=20), matrix[0][0] == 100
    assert ((made.outcomes is not None), (made.verdict.below_majority is not None)) == (enough, enough)
    check_figures(made)


def _sealed(**changes: object) -> Certificate:
    document = json.loads(to_text(BAD)) | changes
    return seal(Certificate.model_validate_json(json.dumps(document)), "aggregator", KEY)


FINE = {"state": "fine", "above_uniform_guess": False, "above_best_constant": False, "below_majority": False}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"verdict": FINE}, "the verdict is fine, its figures give worse"),
        ({"verdict": None}, "the verdict was left out"),
        ({"outcomes": None}, "the verdict is worse, its figures give worse, or other faults"),
        ({"outcomes": {"counts": [180, 21], "correct": 130}}, "201 records of 2 classes"),
        ({"outcomes": {"counts": [180, 10, 10], "correct": 130}}, "200 records of 3 classes"),
        ({"outcomes": {"counts": [180, 20], "correct": 201}}, "201 of them correct"),
        ({"outcomes": {"counts": [195, 5], "correct": 130}}, "the outcomes tell of fewer than 10 people"),
    ],
)
def test_a_signer_who_claims_another_verdict_is_caught(changes: dict[str, object], fault: str) -> None:
    check_figures(_sealed())
    with pytest.raises(CertificateError, match=fault):
        check_figures(_sealed(**changes))


def test_an_older_certificate_keeps_its_bytes_and_its_signature() -> None:
    document = json.loads(to_text(BAD))
    del document["verdict"], document["outcomes"]
    older = seal(Certificate.model_validate_json(json.dumps(document)), "aggregator", KEY)
    raw = to_text(older).encode()
    assert b"verdict" not in raw
    read = parse_certificate(raw, "certificate.json")
    check_figures(read)
    verify_seal(read, KEY.public_key())
    assert in_words(read).verdict == "This certificate carries no verdict: an older version made it."
    # Nor can a verdict be added afterwards.
    with pytest.raises(CertificateError, match="does not cover this certificate"):
        verify_seal(read.model_copy(update={"verdict": BAD.verdict}), KEY.public_key())


def test_the_page_and_the_sealed_file_carry_the_verdict() -> None:
    sealed = seal(BAD, "aggregator", KEY)
    read = parse_certificate(to_text(sealed).encode(), "certificate.json")
    verify_seal(read, KEY.public_key())
    assert read.verdict == BAD.verdict
    assert '<p class="card" id="verdict"><b>Do not use this model as it is' in certificate_page(sealed)
    assert '<p id="verdict">No figure here shows' in certificate_page(GOOD)


# ---- every number that a person can give to a certificate, at the ends of what a computer can hold

TINY, LEAST = 5e-324, sys.float_info.min
EXTREMES = (
    TINY, LEAST, 1e-300, 1e-17, 1e-13, MIN_DELTA, math.nextafter(MIN_DELTA, 0.0), MIN_GROUP_SIZE, 0.5,
    math.nextafter(0.5, 1.0), math.nextafter(1.0, 0.0), 1.0, 1e300, 1.7e308, math.inf, math.nan, 0.0, -0.0, -1.0,
)  # fmt: skip


def certified(delta: float, sizes: tuple[float, ...], method: str, loss_range: float, fewest: int) -> Certificate:
    spec = HistogramSpec(8, loss_range)
    losses = np.linspace(0.0, 2.0, 40) * min(loss_range, 1e299)
    blocks = [loss_block(losses, losses < loss_range, float(losses.sum()), spec) for _ in SPLITS]
    header = np.zeros(evaluation_header_length(spec, CLASSES))
    split_header(header, spec, CLASSES)[0][:] = blocks
    record = EvaluationRecord(
        plan_digest=PLAN_DIGEST, model_digest=MODEL_DIGEST, round=3, threshold=0.1, participants=2,
        classes=CLASSES, masked=True, bins=8, loss_range=loss_range,
        splits=split_sums(header, evaluation_layout(spec, CLASSES)),
    )  # fmt: skip
    terms = IssueTerms(split="test", group_sizes=sizes, delta=delta, method=method, fewest=fewest)  # type: ignore[arg-type]
    return draft(record, make_plan(), terms, issued_at=NOW)


def check_told(made: Certificate, *, page: bool = False) -> None:
    """Check that every figure is a number, proves itself, and can be told in words, and on a page."""
    assert parse_certificate(to_text(made).encode(), "it") == made
    check_figures(made)
    for statement in made.statements:
        assert all(math.isfinite(value) for value in statement.sample)
        assert statement.population is None or math.isfinite(statement.population)
    words = [in_words(made).sample, in_words(made).population, *in_words(made).limits]
    words += [certificate_page(made)] if page else []
    assert not any(" nan" in text or " inf " in text for text in words)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", EXTREMES)
def test_a_chance_of_error_is_proven_or_refused_with_the_allowed_range(delta: float, method: str) -> None:
    if MIN_DELTA <= delta <= MAX_DELTA:
        check_told(certified(delta, (0.1, 1.0), method, 4.0, 1), page=method == METHODS[0])
        return
    with pytest.raises(PlanError, match=r"outside \[1e-12, 0\.5\]"):
        certified(delta, (0.1, 1.0), method, 4.0, 1)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("size", EXTREMES)
def test_a_group_size_is_proven_or_refused_with_the_allowed_range(size: float) -> None:
    if MIN_GROUP_SIZE <= size <= 1.0:
        check_told(certified(0.05, (size, 1.0), "dkw-binomial", 4.0, 1), page=True)
        return
    with pytest.raises(PlanError, match=r"outside \[1e-12, 1\]"):
        certified(0.05, (size, 1.0), "dkw-binomial", 4.0, 1)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("loss_range", "method"), list(zip((*EXTREMES, 1e-5, 1e5), itertools.cycle(METHODS), strict=False))
)
def test_a_range_of_losses_is_proven_or_refused_in_words(loss_range: float, method: str) -> None:
    try:
        made = certified(0.05, (0.1, 1.0), method, loss_range, 1)
    except FedfairError:
        return
    check_told(made, page=True)


@given(st.floats(), st.floats(), st.floats(), st.integers(1, 10**18), st.sampled_from(METHODS))
@settings(max_examples=50)
def test_any_numbers_together_are_proven_or_refused_in_words(
    delta: float, size: float, loss_range: float, fewest: int, method: str
) -> None:
    try:
        made = certified(delta, (size,), method, loss_range, fewest)
    except FedfairError:
        return
    check_told(made)


NUMBERS = (
    ("population", "delta"), ("loss_range",), ("mean",), ("uniform_floor",), ("n",), ("classes",), ("round",),
    ("statements", 0, "group_size"), ("statements", 0, "sample", 1), ("statements", 0, "population"),
    ("histogram", "sums", 0), ("histogram", "counts", 0), ("histogram", "fewest"), ("histogram", "bins"),
    ("training", "worst_group_size"), ("training", "tradeoff"),
)  # fmt: skip


@pytest.mark.parametrize("place", NUMBERS)
def test_a_foreign_certificate_with_an_extreme_number_is_refused_in_words(place: tuple[str | int, ...]) -> None:
    sound = json.loads(to_text(make_certificate()))
    for value in (*EXTREMES, 2**63, 10**400):
        document = json.loads(json.dumps(sound))
        target = document
        for part in place[:-1]:
            target = target[part]
        target[place[-1]] = int(value) if isinstance(target[place[-1]], int) and value in (1.0, 1e300) else value
        raw = (json.dumps(document, indent=1) + "\n").encode()
        try:
            made = parse_certificate(raw, "it")
            check_figures(made)
        except CertificateError:
            continue
        check_told(made)
