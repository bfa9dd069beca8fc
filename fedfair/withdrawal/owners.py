"""Whose a record is, as a site may remember it: a keyed hash of the identifier, and never the identifier.

The key is a secret of one site, so no other site, no lead and nobody with a copy of the hashes can try identifiers
against them. An identifier is the text in its column without surrounding blanks, in Unicode's composed form (NFC):
007 and 7 are two persons, as they are two texts. A number of a typed source is its plain text, 7 for 7.0. An empty
one is nobody's, and never withdrawn.

    full hash = HMAC-SHA256(key, label "fedfair/record-owner/v1", identifier in UTF-8)
    name      = its first 8 bytes as a signed number; 0 is nobody's

Among n persons a name is somebody else's too with a chance below n / 2^64.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.signed_message import labelled_message

KEY_BYTES = 32
NOBODY = 0

COLUMN_REMEDY = "name the column that says whose a record is under data.record_id in collaborator.yaml"

Names = NDArray[np.int64]
"""Names of persons; of records (n,), one each."""


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """The secret of one site, 32 bytes."""

    secret: bytes = field(repr=False)

    def full_hash(self, identifier: str) -> bytes:
        """Return the keyed hash of an identifier, 32 bytes.

        Raises:
            DataError: it is empty.
        """
        text = _plain(identifier)
        if not text:
            raise DataError("an empty identifier names nobody", "state the value as it is in the site's own data")
        message = labelled_message("fedfair/record-owner/v1", [text.encode("utf-8", "surrogatepass")])
        return hmac.digest(self.secret, message, hashlib.sha256)

    def names(self, identifiers: NDArray[np.generic]) -> Names:
        """Return the names of the persons of records, (n,), by their identifiers (n,)."""
        distinct, places = np.unique(identifiers.astype(np.str_), return_inverse=True)
        found = [name_of(self.full_hash(text)) if _plain(text) else NOBODY for text in distinct.tolist()]
        return np.array(found, np.int64)[places.reshape(-1)]


def name_of(full_hash: bytes) -> int:
    """Return the name of a person by the keyed hash; never 0."""
    return int.from_bytes(full_hash[:8], "little", signed=True) or 1


def _plain(identifier: str) -> str:
    return unicodedata.normalize("NFC", identifier).strip()


@dataclass(frozen=True, slots=True)
class RecordOwners:
    """How one site tells whose its records are, and whose count no longer.

    Attributes:
        key: the site's.
        column: that has the identifiers, by its name in the site's own data; None where none is stated.
        withdrawn: the names of those who have withdrawn.
    """

    key: OwnerKey
    column: str | None
    withdrawn: frozenset[int] = field(default=frozenset(), repr=False)

    def remaining(self, names: Names) -> NDArray[np.bool_]:
        """Return whether each record (n,) still counts."""
        gone = np.fromiter(self.withdrawn, np.int64, len(self.withdrawn))
        return ~np.isin(names, gone)

    def unknown_owner(self, where: object) -> DataError:
        """Return the fault of records of which nobody can tell whether a person has withdrawn them."""
        return DataError(
            f"{where}: {len(self.withdrawn)} persons have withdrawn at this site, and nothing says whose a record "
            "is: none can be left out, so none is read",
            COLUMN_REMEDY,
        )
