"""`fedfair passport`: everything that is shown about a model, in one signed file, and the check of all of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from fedfair.errors import IdentityError, PassportError
from fedfair.ids import AGGREGATOR
from fedfair.process.terminal import DEBUG_HELP, console, say, tell
from fedfair.store.atomic_file import write_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedfair.passport.document import Passport
    from fedfair.passport.evidence import EvidenceKind, EvidencePlace


@dataclass(frozen=True, slots=True)
class Signer:
    """The participant that signs a passport, and its key; None for no signature."""

    name: str
    key: Ed25519PrivateKey | None


app = typer.Typer(no_args_is_help=True, epilog=DEBUG_HELP)

CERT_FOLDER = typer.Option(Path("cert"), "--cert-folder", help="Folder of the workspace's keys.")
AS_JSON = typer.Option(False, "--json", help="Print JSON.")


@app.command()
def create(
    result: Path = typer.Option(Path("result.json"), "--result", help="The run's result."),
    model: Path = typer.Option(
        None, "--model", help="The run's output model (safetensors).",
        show_default="the one in save/ that the result is about",
    ),
    evaluation: Path = typer.Option(
        Path("save/evaluation.json"), "--evaluation", "-e", help="The evaluation's sums."
    ),
    certificate: Path = typer.Option(
        None, "--certificate", help="The fairness certificate.",
        show_default="certificate.json, where there is one",
    ),
    data: list[Path] = typer.Option(
        None, "--data", help="A site's signed description of its records; repeat for each site.",
        show_default="*.data.json here",
    ),
    withdrawal: list[Path] = typer.Option(
        None, "--withdrawal", help="A site's signed notice of withdrawals; repeat for each site.",
        show_default="*.withdrawal.json here",
    ),
    words: Path = typer.Option(
        None, "--words", help="What the provider declares.", show_default="passport.yaml, where there is one"
    ),
    software: Path = typer.Option(
        None, "--software", help="Bill of materials in CycloneDX form.", show_default="of what is installed here"
    ),
    name: str = typer.Option(AGGREGATOR, "--name", "-n", help="The participant that signs."),
    cert_folder: Path = CERT_FOLDER,
    passphrase_file: Path | None = typer.Option(
        None, "--passphrase-file", help="File that holds the passphrase of the signing key."
    ),
    unsigned: bool = typer.Option(
        False, "--unsigned", help="Make an unsigned passport, which anybody could have made."
    ),
    transcript: Path = typer.Option(
        None, "--transcript", help="Folder with transcript.json, leaves.bin and evaluation.bin.",
        show_default="save/, where they are",
    ),
    with_sums: bool = typer.Option(
        False, "--with-sums", help="Add the confidential sums, for an auditor; a bin of them may hold one person."
    ),
    output: Path = typer.Option(Path("passport"), "--output", "-o", help="Write the passport into this folder."),
) -> None:  # fmt: skip
    """Collect what is shown about a run's model into a folder: a signed file, a page, and the evidence."""
    _check_output(output)
    places = [*_gathered(result, model, evaluation, certificate, data, words, software), *_notices(withdrawal)]
    key = None if unsigned else _key(name, cert_folder, passphrase_file)
    with tempfile.TemporaryDirectory(dir=output.resolve().parent, prefix=f".{output.name}-") as folder:
        made = _made(Path(folder), places, Signer(name, key), _transcript(transcript), with_sums=with_sums)
        if output.exists():
            shutil.rmtree(output)
        Path(folder, "made").rename(output)
    _report(made)
    _say_written(output, made, with_sums=with_sums)


def _say_written(output: Path, made: Passport, *, with_sums: bool) -> None:
    kept = [one.id.rpartition("/")[2] for one in made.files if one.confidential and not with_sums]
    say(
        f"written: {output}/passport.json, {output}/passport.html, {len(made.files) - len(kept)} files of evidence"
    )
    if kept:
        say(f"kept here, for auditors alone, because they tell of single people: {', '.join(kept)} (--with-sums)")


def _gathered(
    result: Path,
    model: Path | None,
    evaluation: Path,
    certificate: Path | None,
    data: list[Path] | None,
    words: Path | None,
    software: Path | None,
) -> list[EvidencePlace]:
    """Return where the evidence is; arguments as of `create`."""
    from fedfair.passport.evidence import (
        CERTIFICATE,
        EVALUATION,
        MODEL,
        RESULT,
        SOFTWARE,
        WORDS,
        EvidencePlace,
    )

    given: dict[EvidenceKind, Path | None] = {
        RESULT: _there(result, "run `fedfair aggregator start` or `fedfair simulate --save save` first"),
        EVALUATION: _there(evaluation, "run `fedfair aggregator start` or `fedfair simulate --save save` first"),
        CERTIFICATE: _optional(certificate, Path("certificate.json")),
        WORDS: _optional(words, Path("passport.yaml")),
        SOFTWARE: None if software is None else _there(software, "name a file that exists"),
    }
    given[MODEL] = _there(model, "name the model's file") if model is not None else _model_of(result)
    places = [EvidencePlace(kind, path) for kind, path in given.items() if path is not None]
    return [*places, *_descriptions(data)]


def _made(
    folder: Path, places: list[EvidencePlace], signer: Signer, transcript: Path | None, *, with_sums: bool
) -> Passport:
    """Return the passport after writing all of it into `made` of a folder."""
    from fedfair.passport.document import EVIDENCE_FOLDER, PAGE_FILE, PASSPORT_FILE, to_text
    from fedfair.passport.evidence import PLAN, PROOF, SOFTWARE, SUM, EvidencePlace, ModelEvidence, evidence_in
    from fedfair.passport.issue import drafted
    from fedfair.passport.page import passport_page
    from fedfair.passport.seal import seal_passport
    from fedfair.passport.software_bill import software_bill
    from fedfair.transcript.model_proof import proof_of_model
    from fedfair.workspace.archive import pack

    target = folder / "made" / EVIDENCE_FOLDER
    target.mkdir(parents=True)
    plan, software = target / PLAN.file, target / SOFTWARE.file
    plan.write_bytes(pack(Path.cwd()))
    own = [EvidencePlace(PLAN, plan)]
    if transcript is not None:
        (target / PROOF.file).write_text(proof_of_model(transcript), encoding="utf-8")
        own.append(EvidencePlace(PROOF, target / PROOF.file))
        places = [*places, *(EvidencePlace(SUM, path) for path in [transcript / SUM.file] if path.is_file())]
    if all(place.kind != SOFTWARE for place in places):
        software.write_text(software_bill(), encoding="utf-8")
        own.append(EvidencePlace(SOFTWARE, software))
    passport = drafted(ModelEvidence([*places, *own]), datetime.now(UTC).isoformat(timespec="seconds"))
    for place in places:
        if with_sums or not place.kind.confidential:
            shutil.copyfile(place.path, target / place.file)
    kept = [one for one in passport.files if one.confidential]
    if ModelEvidence(evidence_in(target), kept).listed() != passport.files:
        raise PassportError("a file of the evidence changed meanwhile", "run this again when nothing writes to it")
    if signer.key is not None:
        passport = seal_passport(passport, signer.name, signer.key)
    write_whole(target.parent / PASSPORT_FILE, to_text(passport))
    write_whole(target.parent / PAGE_FILE, passport_page(passport))
    return passport


@app.command()
def verify(
    folder: Path = typer.Argument(Path("passport"), help="The passport's folder."),
    key: str = typer.Option(
        None, "--key", help="The issuer's public key, or a file that holds it.",
        show_default="from cert/NAME/signing.pub",
    ),
    plan_file: Path = typer.Option(None, "--plan", "-p", help="Check that the sites have the keys of this plan."),
    model: Path = typer.Option(None, "--model", help="Check that it is about this model (safetensors)."),
    cert_folder: Path = CERT_FOLDER,
    unsigned: bool = typer.Option(False, "--unsigned", help="Check what the evidence shows, without a signature."),
    as_json: bool = AS_JSON,
) -> None:  # fmt: skip
    """Check a passport offline: its files, every statement, its signature, plan and model."""
    from fedfair.api.passports import verify_passport

    found = verify_passport(
        folder, key=key, plan=plan_file, model=model, cert_folder=cert_folder, unsigned=unsigned
    )
    if unsigned and found.passport.signature is not None:
        tell("warning: the SIGNATURE WAS NOT CHECKED: anybody could have made this", "bold red")
    if as_json:
        states = {one.id[1:]: one.state for one in found.passport.statements}
        console.print_json(
            json.dumps({"signed_by": found.signed_by, "checked": list(found.checked), "statements": states})
        )
        return
    _report(found.passport)
    for sentence in found.checked:
        console.print(Text(f"checked: {sentence}"))


@app.command("words")
def words_command(
    output: Path = typer.Option(Path("passport.yaml"), "--output", "-o", help="Write the draft here."),
) -> None:
    """Write a draft of what the provider of a model declares."""
    from fedfair.passport.declarations import DRAFT

    if output.exists():
        raise PassportError(f"{output} exists", "edit it, or name another file with --output")
    write_whole(output, DRAFT)
    say(f"written: {output}; replace every line")


def _report(passport: Passport) -> None:
    if passport.signature is None:
        tell("warning: NOT SIGNED: anybody could have made this passport", "bold red")
    table = Table(
        title=f"Passport of the model {passport.about.digest[:19]}… of {passport.about.name}", title_justify="left"
    )
    for heading in ("statement", "", "shown by"):
        table.add_column(heading, overflow="fold")
    for one in passport.statements:
        files = ", ".join(name.rpartition("/")[2] for name in one.evidence)
        table.add_row(Text(one.title), Text(one.state), Text(files or "-"))
    console.print(table)
    answered = sum(1 for one in passport.requirements if one.state != "absent")
    say(f"{answered} of {len(passport.requirements)} requirements are answered; the page says which")


def _check_output(output: Path) -> None:
    from fedfair.passport.document import PASSPORT_FILE

    if not output.resolve().parent.is_dir():
        raise PassportError(f"{output}: the folder {output.parent} does not exist", "create it")
    is_one = output.is_dir() and (output / PASSPORT_FILE).is_file()
    if output.exists() and not is_one and not (output.is_dir() and not any(output.iterdir())):
        raise PassportError(f"{output} exists and is no passport", "name another folder with --output")


def _there(path: Path, remedy: str) -> Path:
    if not path.is_file():
        raise PassportError(f"there is no file {path}", remedy)
    return path


def _optional(given: Path | None, usual: Path) -> Path | None:
    if given is not None:
        return _there(given, "name a file that exists, or leave the option out")
    return usual if usual.is_file() else None


def _transcript(given: Path | None) -> Path | None:
    """Return the folder of the run's transcript; None where there is none."""
    from fedfair.transcript.evidence import FILE

    usual = Path("save") if given is None else given
    if (usual / FILE).is_file():
        return usual
    if given is not None:
        raise PassportError(f"there is no {usual / FILE}", "name the folder save/ of the run's lead")
    return None


def _notices(given: list[Path] | None) -> Iterator[EvidencePlace]:
    from fedfair.passport.evidence import WITHDRAWAL, EvidencePlace
    from fedfair.withdrawal.notice import stated_notice

    for path in given or sorted(Path().glob("*.withdrawal.json")):
        found = stated_notice(_there(path, "name a file that exists").read_bytes(), str(path))
        yield EvidencePlace(WITHDRAWAL, path, found.participant)


def _descriptions(given: list[Path] | None) -> Iterator[EvidencePlace]:
    from fedfair.passport.evidence import DATA, EvidencePlace
    from fedfair.passport.site_description import parse_description

    for path in given or sorted(Path().glob("*.data.json")):
        site = parse_description(_there(path, "name a file that exists").read_bytes(), str(path)).site
        yield EvidencePlace(DATA, path, site)


def _model_of(result: Path) -> Path:
    """Return the model in save/ that a result is about."""
    from fedfair.aggregation import model_file
    from fedfair.aggregation.requests import vector_sha256
    from fedfair.plan.digest import format_digest
    from fedfair.results.reading import parse_result

    returned = parse_result(result.read_bytes(), str(result)).model
    files = sorted(Path("save").glob("*.safetensors"))
    for path in files:
        if returned is not None and format_digest(vector_sha256(model_file.load(path)[1])) == returned.digest:
            return path
    raise PassportError(
        f"none of {', '.join(map(str, files)) or 'no models in save/'} is the model that {result} is about",
        "name it with --model",
    )


def _key(name: str, cert_folder: Path, passphrase_file: Path | None) -> Ed25519PrivateKey:
    from fedfair.identity.store import load_signing_key
    from fedfair.process.passphrase import own_passphrase

    try:
        return load_signing_key(cert_folder, name, own_passphrase(cert_folder, name, passphrase_file))
    except IdentityError as error:
        raise IdentityError(
            error.message, f"{error.remedy}; or make a passport that nobody vouches for: --unsigned"
        ) from error
