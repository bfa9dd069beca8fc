"""The check of a certificate as a value: everything that the command checks, or an error."""

from pathlib import Path

import pytest

from fedfair.api.certificates import verify_certificate
from fedfair.certificate.document import to_text
from fedfair.errors import CertificateError
from tests.certificate.certificate_makers import make_certificate


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(to_text(make_certificate()))
    return path


def test_signatures_and_changed_figures_are_checked(file: Path) -> None:
    found = verify_certificate(file, unsigned=True)
    assert found.signed_by is None
    assert found.certificate == make_certificate()
    assert found.checked[:2] == ("every figure follows from the histogram", "the signature was NOT checked")
    assert found.sentences[0].startswith("No group making up at least")
    assert all(sentence in str(found) for sentence in found.sentences)
    assert found.limits
    bounds = found.at_most
    assert list(bounds) == [each.group_size for each in found.certificate.statements]
    assert all(sample >= found.certificate.mean for sample, _ in bounds.values())
    with pytest.raises(CertificateError, match=r"signed"):
        verify_certificate(str(file))
    made = make_certificate()
    file.write_text(to_text(made.model_copy(update={"mean": made.mean / 2})))
    with pytest.raises(CertificateError, match="does not prove: mean is"):
        verify_certificate(file, unsigned=True)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(CertificateError, match="is no fairness certificate"):
        verify_certificate(tmp_path / "other.json")
    with pytest.raises(FileNotFoundError):
        verify_certificate(tmp_path / "nowhere.json")
