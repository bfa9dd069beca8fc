"""The page's own commands for a time stamp: an authority's answer fits the proof, and no other file."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "explain" / "transcript.md"
QUERY, VERIFY = re.findall(r"^\$ (openssl ts .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
AUTHORITY = """
[tsa]
default_tsa = here
[here]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
"""
KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_an_authority_s_answer_fits_the_proof_and_no_other_file(tmp_path: Path) -> None:
    def run(command: str, *, fails: bool = False) -> None:
        done = subprocess.run(shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) is fails, done.stderr

    for name, content in {
        "proof.json": "{}", "tsa.cnf": AUTHORITY, "serial": "01\n",
        "use.cnf": "extendedKeyUsage=critical,timeStamping",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(content)
    for root in ("root", "other"):
        run(f"openssl req -x509 {KEY} -keyout {root}.key -out {root}.pem -subj /CN={root} -days 2")
    run(f"openssl req -new {KEY} -keyout tsa.key -out tsa.csr -subj /CN=tsa")
    signed = "-CA root.pem -CAkey root.key -CAcreateserial -days 2 -extfile use.cnf"
    run(f"openssl x509 -req -in tsa.csr -out tsa.pem {signed}")
    run(QUERY)
    run("openssl ts -reply -config tsa.cnf -queryfile proof.tsq -signer tsa.pem -inkey tsa.key -out proof.tsr ")
    run(VERIFY)
    run(VERIFY.replace("root.pem", "other.pem"), fails=True)
    (tmp_path / "proof.json").write_text("{ }")
    run(VERIFY, fails=True)
