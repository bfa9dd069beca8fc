"""A passport states what its evidence shows: whatever else it states is refused, whoever has signed it."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rdflib import Graph, Literal, URIRef
from rdflib.namespace import DCTERMS, PROV

import fedfair
from fedfair.certificate.document import parse_certificate
from fedfair.certificate.document import to_text as certificate_text
from fedfair.certificate.seal import seal
from fedfair.errors import FedfairError, PassportError
from fedfair.identity.store import load_signing_key
from fedfair.passport.document import CONTEXT, PASSPORT_FILE, Passport, parse_passport, to_text
from fedfair.passport.evidence import KINDS, ModelEvidence, evidence_in
from fedfair.passport.issue import drafted, mapped
from fedfair.passport.page import passport_page
from fedfair.passport.requirements import REQUIREMENTS
from fedfair.passport.seal import seal_passport
from fedfair.passport.site_description import described, parse_description, read_words
from fedfair.passport.site_description import to_text as description_text
from fedfair.passport.table import STATEMENTS
from fedfair.plan.loading import load_plan
from tests.passport.conftest import command

pytestmark = pytest.mark.usefixtures("undrawn")

NOW = "2030-01-31T12:00:00+00:00"


def read(study: Path) -> Passport:
    place = study / "passport" / PASSPORT_FILE
    return parse_passport(place.read_bytes(), str(place))


def rewritten(study: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a passport says, and let its issuer sign that."""
    values = json.loads((study / "passport" / PASSPORT_FILE).read_text())
    change(values)
    values["signature"] = None
    changed = Passport.model_validate_json(json.dumps(values)).model_copy(update={"issuer": None})
    write(study, changed)


def write(study: Path, passport: Passport) -> None:
    signed = seal_passport(passport, "aggregator", load_signing_key(study / "cert", "aggregator"))
    (study / "passport" / PASSPORT_FILE).write_text(to_text(signed))
    (study / "passport" / "passport.html").write_text(passport_page(signed))


def again(study: Path) -> None:
    """Let the issuer make the passport anew of the evidence as it is now."""
    write(study, drafted(ModelEvidence(evidence_in(study / "passport" / "evidence")), NOW))


def test_a_passport_is_made_and_verified_with_every_statement(study: Path) -> None:
    found = fedfair.verify_passport(
        study / "passport",
        plan=study / "plan" / "plan.yaml",
        model=study / "passport" / "evidence" / "model.safetensors",
    )
    states = {one.id[1:]: one.state for one in found.passport.statements}
    assert states.pop("purpose") == "declared"
    assert set(states) == {room.name for room in STATEMENTS} - {"purpose"}
    assert {name for name, state in states.items() if state == "absent"} == {
        "release",
        "withdrawals",
        "transcript",
    }
    assert found.signed_by == "aggregator"
    assert "the model is this one" in found.checked
    shown = [name for name, state in states.items() if state == "shown"]
    assert {"model", "agreement", "data", "accuracy", "groups", "certificate", "privacy", "software"} <= {*shown}
    data = next(one for one in found.passport.statements if one.id == "#data")
    assert any("ethics vote 12/1993" in sentence for sentence in data.sentences)
    assert "clinic-b has not described its records." in data.sentences


def test_sums_that_may_tell_of_single_people_stay_with_the_issuer_and_an_auditor_can_check_them(
    study: Path,
) -> None:
    said = command("passport", "create", "--output", "public")
    assert "kept here, for auditors alone, because they tell of single people: evaluation.json" in said
    sums = study / "public" / "evidence" / "evaluation.json"
    assert not sums.exists()
    found = fedfair.verify_passport("public")
    assert "kept by the issuer, and not looked at: evaluation.json" in found.checked
    sums.write_bytes((study / "save" / "evaluation.json").read_bytes())
    assert not any("kept by the issuer" in line for line in fedfair.verify_passport("public").checked)
    sums.write_bytes(sums.read_bytes() + b" ")
    with pytest.raises(PassportError, match=r"evaluation\.json has SHA-256"):
        fedfair.verify_passport("public")
    sums.unlink()
    (study / "public" / "evidence" / "result.json").unlink()
    with pytest.raises(PassportError, match=r"no result\.json"):
        fedfair.verify_passport("public")


def test_a_certificate_of_other_losses_than_the_sums_makes_no_passport(study: Path) -> None:
    command("certificate", "--split", "train", "--output", "train.json", "--page", "train.html", "--quiet")
    own = parse_certificate((study / "train.json").read_bytes(), "train.json")
    told = own.model_copy(update={"split": "test"})
    forged = seal(told, "aggregator", load_signing_key(study / "cert", "aggregator"))
    (study / "passport" / "evidence" / "certificate.json").write_text(certificate_text(forged))
    with pytest.raises(FedfairError):
        again(study)


def test_its_figures_are_those_of_the_result(study: Path) -> None:
    result = json.loads((study / "result.json").read_text())
    by_name = {one.id: one for one in read(study).statements}
    assert by_name["#accuracy"].figures["mean loss"] == result["test"]["mean"]
    assert by_name["#groups"].figures["worst 0.1"] == result["test"]["by_group_size"]["0.1"]["worst"]


@pytest.mark.parametrize("change", range(6))
def test_what_the_evidence_does_not_show_is_refused_though_it_is_signed(study: Path, change: int) -> None:
    def lie(values: dict[str, Any]) -> None:
        accuracy = next(one for one in values["statements"] if one["id"] == "#accuracy")
        if change == 0:
            accuracy["figures"]["mean loss"] -= 0.01
        elif change == 1:
            accuracy["sentences"][0] = accuracy["sentences"][0].replace("nats", "bits")
        elif change == 2:
            accuracy["state"] = "declared"
        elif change == 3:
            values["statements"].remove(accuracy)
            for one in values["requirements"]:
                one["answeredBy"] = [name for name in one["answeredBy"] if name != "#accuracy"]
        elif change == 4:
            values["requirements"][0]["state"] = "shown"
        else:
            accuracy["evidence"] = []

    rewritten(study, lie)
    with pytest.raises(PassportError, match="evidence"):
        fedfair.verify_passport(study / "passport")


def test_a_change_after_the_signature_is_refused(study: Path) -> None:
    place = study / "passport" / PASSPORT_FILE
    place.write_text(place.read_text().replace('"issuedAt": "2', '"issuedAt": "3'))
    with pytest.raises(PassportError, match="changed after it was signed"):
        fedfair.verify_passport(study / "passport")


def test_every_file_of_the_evidence_is_bound_by_its_digest(study: Path) -> None:
    for place in evidence_in(study / "passport" / "evidence"):
        before = place.path.read_bytes()
        place.path.write_bytes(before + b" ")
        with pytest.raises(PassportError, match=f"{place.file} has SHA-256"):
            fedfair.verify_passport(study / "passport")
        if not place.kind.confidential:
            place.path.unlink()
            with pytest.raises(PassportError, match=place.file):
                fedfair.verify_passport(study / "passport")
        place.path.write_bytes(before)
    fedfair.verify_passport(study / "passport" / PASSPORT_FILE)
    (study / "passport" / "evidence" / "data.clinic-c.json").mkdir()
    with pytest.raises(PassportError, match="is no file"):
        fedfair.verify_passport(study / "passport")
    (study / "passport" / "evidence" / "data.clinic-c.json").rmdir()
    (study / "passport" / "evidence" / "data.clinic-b.json").write_bytes(b"{}")
    with pytest.raises(PassportError, match="not in the passport's list"):
        fedfair.verify_passport(study / "passport")


def test_a_result_that_the_opened_sums_do_not_prove_makes_no_passport(study: Path) -> None:
    place = study / "passport" / "evidence" / "result.json"
    told = json.loads(place.read_text())
    for change in ("mean", "worst", "n"):
        values = json.loads(json.dumps(told))
        test = values["test"]
        if change == "worst":
            test["by_group_size"]["0.1"]["worst"] *= 0.9
        else:
            test[change] = test[change] * 0.9 if change == "mean" else test[change] - 1
        place.write_text(json.dumps(values))
        with pytest.raises(PassportError, match=r"evaluation"):
            again(study)


def test_evidence_of_another_model_or_plan_makes_no_passport(study: Path) -> None:
    folder = study / "passport" / "evidence"
    before = (folder / "result.json").read_text()
    told = json.loads(before)
    for change in ("plan_digest", "model"):
        values = json.loads(before)
        if change == "model":
            values["model"]["digest"] = "sha256:" + "0" * 64
        else:
            values[change] = "sha256:" + "0" * 64
        (folder / "result.json").write_text(json.dumps(values))
        with pytest.raises(PassportError, match="the rest about"):
            again(study)
    (folder / "result.json").write_text(json.dumps(told))
    sums = json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").write_text(json.dumps({**sums, "model_digest": "sha256:" + "0" * 64}))
    with pytest.raises(PassportError, match="the rest about"):
        again(study)


def test_a_certificate_by_another_hand_in_the_issuers_name_is_refused(study: Path) -> None:
    place = study / "passport" / "evidence" / "certificate.json"
    own = parse_certificate(place.read_bytes(), str(place))
    forged = seal(own, "aggregator", load_signing_key(study / "cert", "clinic-b"))
    place.write_text(certificate_text(forged))
    again(study)
    with pytest.raises(PassportError, match="of aggregator, the passport with"):
        fedfair.verify_passport(study / "passport")


def test_a_description_counts_only_with_its_sites_own_signature(study: Path) -> None:
    place = study / "passport" / "evidence" / "data.clinic-a.json"
    told = parse_description(place.read_bytes(), str(place))
    words, plan = read_words(study / "data-description.yaml"), load_plan(study / "plan" / "plan.yaml")
    other, own = (load_signing_key(study / "cert", name) for name in ("clinic-b", "clinic-a"))
    forgeries = {
        "another signed it": described(words, plan, told.plan_digest, "clinic-a", other),
        "is about the plan": described(words, plan, "sha256:" + "0" * 64, "clinic-a", own),
        "whose key the plan does not pin": described(words, plan, told.plan_digest, "clinic-c", own),
        "is of clinic-b": described(words, plan, told.plan_digest, "clinic-b", other),
        "was changed": told.model_copy(update={"words": {**told.words, "gaps": "none"}}),
        "has not exactly the words": told.model_copy(update={"words": {"gaps": "none"}}),
    }
    for fault, forged in forgeries.items():
        place.write_text(description_text(forged))
        with pytest.raises(PassportError, match=fault):
            again(study)
    place.write_text(description_text(told) + "\n")
    with pytest.raises(PassportError, match="edited"):
        again(study)


def test_another_key_and_no_signature_are_refused(study: Path) -> None:
    with pytest.raises(PassportError, match="was issued with the key"):
        fedfair.verify_passport(study / "passport", key=study / "cert" / "clinic-a" / "signing.pub")
    with pytest.raises(PassportError, match="does not tell which key"):
        fedfair.verify_passport(study / "passport", cert_folder=study / "plan")
    unsigned = read(study).model_copy(update={"signature": None, "issuer": None})
    (study / "passport" / PASSPORT_FILE).write_text(to_text(unsigned))
    (study / "passport" / "passport.html").write_text(passport_page(unsigned))
    with pytest.raises(PassportError, match="not signed"):
        fedfair.verify_passport(study / "passport")
    assert fedfair.verify_passport(study / "passport", unsigned=True).signed_by is None


def test_the_signature_covers_the_issuer(study: Path) -> None:
    own = read(study)
    assert own.issuer is not None
    renamed = own.model_copy(update={"issuer": own.issuer.model_copy(update={"name": "clinic-a"})})
    (study / "passport" / PASSPORT_FILE).write_text(to_text(renamed))
    with pytest.raises(PassportError, match="changed after it was signed"):
        fedfair.verify_passport(study / "passport", key=study / "cert" / "aggregator" / "signing.pub")
    flipped = bytearray(base64.b64decode(own.signature or ""))
    flipped[0] ^= 1
    wrong = own.model_copy(update={"signature": base64.b64encode(flipped).decode()})
    (study / "passport" / PASSPORT_FILE).write_text(to_text(wrong))
    with pytest.raises(PassportError, match="changed after it was signed"):
        fedfair.verify_passport(study / "passport")


def test_a_plan_with_other_keys_of_sites_is_told(study: Path) -> None:
    roster = study / "plan" / "roster.yaml"
    lines = roster.read_text().splitlines()
    keys = [line.split(": ")[1] for line in lines]
    roster.write_text(f"clinic-a: {keys[1]}\nclinic-b: {keys[0]}\n")
    with pytest.raises(PassportError, match=r"another key than .* for clinic-a, clinic-b"):
        fedfair.verify_passport(study / "passport", plan=study / "plan" / "plan.yaml")


def test_another_model_than_the_one_at_hand_is_told(study: Path) -> None:
    with pytest.raises(PassportError, match="the passport is about the model"):
        fedfair.verify_passport(study / "passport", model=study / "plan" / "plan.initial.safetensors")


def test_a_page_that_says_something_else_is_refused(study: Path) -> None:
    page = study / "passport" / "passport.html"
    page.write_text(page.read_text().replace("How right it is", "How good it is"))
    with pytest.raises(PassportError, match="not the page of this passport"):
        fedfair.verify_passport(study / "passport")


def test_the_words_of_another_version_are_not_compared_and_figures_are(study: Path) -> None:
    def older(values: dict[str, Any]) -> None:
        values["madeWith"] = "0.0.1"
        values["statements"][1]["sentences"] = ["older words."]

    rewritten(study, older)
    assert "not the words, chosen by 0.0.1" in fedfair.verify_passport(study / "passport").checked[1]

    def worse(values: dict[str, Any]) -> None:
        values["statements"][1]["figures"]["parameters"] += 1

    rewritten(study, worse)
    with pytest.raises(PassportError, match="parameters"):
        fedfair.verify_passport(study / "passport")


def test_the_file_has_one_spelling_and_one_meaning(study: Path) -> None:
    raw = (study / "passport" / PASSPORT_FILE).read_bytes()
    for changed in (raw + b"\n", raw.replace(b"\n ", b"\n  ", 1), raw.replace(b"{", b'{"x": 1,', 1)):
        with pytest.raises(PassportError):
            parse_passport(changed, "p")
    other = read(study).model_copy(update={"context": {**CONTEXT, "sha256": "schema:name"}})
    with pytest.raises(PassportError, match="another meaning"):
        parse_passport(to_text(other).encode(), "p")
    with pytest.raises(PassportError, match="fedfair/passport/2"):
        parse_passport(raw.replace(b"fedfair/passport/1", b"fedfair/passport/2"), "p")


def test_requirements_name_statements_and_their_state_is_the_worst_of_them(study: Path) -> None:
    names = {room.name for room in STATEMENTS}
    assert {name for asked in REQUIREMENTS for name in asked.statements} == names
    assert len({asked.name for asked in REQUIREMENTS}) == len(REQUIREMENTS)
    statements = read(study).statements
    found = {one.id: one.state for one in mapped(statements)}
    assert found["#act-9"] == "absent"
    assert found["#act-14"] == "declared"
    assert found["#act-13-3-b-v"] == "shown"
    less = [one.model_copy(update={"state": "absent"}) if one.id == "#groups" else one for one in statements]
    assert {one.id: one.state for one in mapped(less)}["#act-13-3-b-v"] == "absent"


def test_the_files_are_listed_as_json_ld_of_known_kinds(study: Path) -> None:
    values = json.loads((study / "passport" / PASSPORT_FILE).read_text())
    assert values["@context"]["prov"] == "http://www.w3.org/ns/prov#"
    assert {one["kind"] for one in values["files"]} <= {kind.name for kind in KINDS}
    listed = {one["id"] for one in values["files"]}
    assert all(name in listed for one in values["statements"] for name in one["evidence"])
    assert values["about"]["id"].startswith("ni:///sha-256;")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create", "--result", "x.json"), "there is no file x.json"),
        (("create", "--certificate", "x.json"), "there is no file x.json"),
        (("create", "--model", "plan/plan.initial.safetensors"), "does not say its architecture"),
        (("create", "--data", "result.json"), "no description"),
        (("create", "--software", "result.json"), "no bill of materials"),
        (("create", "--output", "save"), "is no passport"),
        (("create", "--output", "no/where"), "does not exist"),
        (("create", "--name", "clinic-x"), "clinic-x"),
        (("words", "--output", "passport.yaml"), "exists"),
        (("verify", "save"), "does not exist"),
    ],
)
@pytest.mark.usefixtures("study")
def test_mistakes_are_told_in_one_error(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(FedfairError, match=told) as fault:
        command("passport", *words)
    assert fault.value.remedy
    fedfair.verify_passport("passport")


@pytest.mark.usefixtures("study")
def test_drafts_that_nobody_has_filled_in_are_refused() -> None:
    Path("passport.yaml").unlink()
    command("passport", "words")
    with pytest.raises(FedfairError, match="4 faults"):
        command("passport", "create")
    Path("data-description.yaml").unlink()
    command("data", "describe", "--draft")
    with pytest.raises(FedfairError, match="7 faults"):
        command("data", "describe")


def test_a_bill_of_other_software_than_ran_is_refused(study: Path) -> None:
    place = study / "passport" / "evidence" / "software.json"
    values = json.loads(place.read_text())
    for part in values["components"]:
        if part["name"] == "torch":
            part["version"] = "1.0"
    place.write_text(json.dumps(values))
    with pytest.raises(PassportError, match=r"torch 1\.0, the run used"):
        again(study)


def test_the_bill_is_cyclonedx(study: Path) -> None:
    pytest.importorskip("cyclonedx", reason="the extra supply is not installed: make lock")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (study / "passport" / "evidence" / "software.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert '"numpy"' in text


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:rdflib")
def test_an_independent_reader_of_json_ld_finds_the_same_facts(study: Path) -> None:
    graph = Graph()
    graph.parse(study / "passport" / PASSPORT_FILE, format="json-ld", publicID="https://example.org/p/")
    files = {str(one.id): one for one in read(study).files}
    for name, listed in files.items():
        node = URIRef(f"https://example.org/p/{name}")
        assert (node, URIRef("https://schema.org/sha256"), Literal(listed.sha256)) in graph
    statement = URIRef("https://example.org/p/#accuracy")
    derived = {
        str(node).removeprefix("https://example.org/p/") for node in graph.objects(statement, PROV.wasDerivedFrom)
    }
    assert derived == {"evidence/result.json", "evidence/evaluation.json"}
    titles = {str(title) for title in graph.objects(None, DCTERMS.title)}
    assert {room.title for room in STATEMENTS} <= titles


def test_other_prediction_sets_than_the_model_has_are_refused(study: Path) -> None:
    place = study / "passport" / "evidence" / "result.json"
    values = json.loads(place.read_text())
    values["sets"] |= {"kind": "classes", "missed": 0.01, "least_score": 0.5}
    place.write_text(json.dumps(values))
    with pytest.raises(PassportError, match="other prediction sets"):
        again(study)
