"""The digest that every site approves: over plan, layout, initial weights and all code that the plan names.

Canonical form of a plan: JSON in ASCII, keys sorted, no spaces, what equals its default left out, every float
written by `float.hex`. Comments, the order of keys, quotes, `1` for `1.0` and a default that is written out
therefore change nothing, and a change of any value, however small, changes the digest. Lists keep their order,
because the order of collaborators has a meaning. So has the order of `categorical` columns: the features of the
model are in that order. Where it is not the order of their names, the columns are written as a list of names and
values.

A new version of fedfair may add keys with defaults, and no plan needs another approval. So that one digest means
one run, a default that was released never changes, nor what it does: a new behaviour is a new value. A key without
a default is always written, even if its section has nothing else to say, so that the choice between sections stays
visible. Two plans have one canonical form only if they are equal: with the defaults filled in, it is the plan
again.

    SHA-256 over these fields, each with its length in front (8 bytes, big-endian):
    "fedfair/plan/v2", canonical plan, layout digest, initial weights digest, number of code files,
    then name and digest of each, sorted by name

The code alone has a digest too, over "fedfair/code/v1" and the fields from the number of code files on. So has
what a run begins with in place of the seed: over "fedfair/initial/v1" and the canonical `training.initial`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping

from fedfair.errors import PlanError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.fields import Section
from fedfair.plan.initial import InitialSection
from fedfair.plan.schema import Plan

LABEL = b"fedfair/plan/v2"
CODE_LABEL = b"fedfair/code/v1"
WEIGHTS_LABEL = b"fedfair/initial-weights/v1"
BEGINNING_LABEL = b"fedfair/initial/v1"
DIGEST_BYTES = 32

_SPELLING = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_PREFIX = "sha256:"
_TEXT = re.compile(r"sha256:([0-9a-f]{64})")


def plan_digest(
    plan: Plan, *, layout_digest: bytes, initial_weights_digest: bytes, code_digests: Mapping[str, bytes]
) -> bytes:
    """Return the 32 bytes that a site approves.

    Args:
        plan: the plan.
        layout_digest: 32 bytes, of the model's layout.
        initial_weights_digest: 32 bytes, by `weights_digest`.
        code_digests: SHA-256 of every file that the plan's "module:function" may run, by its path.
    """
    return _digest(_fields(plan, layout_digest, initial_weights_digest, code_digests))


def _fields(
    plan: Plan, layout_digest: bytes, initial_weights_digest: bytes, code_digests: Mapping[str, bytes]
) -> Iterator[bytes]:
    yield LABEL
    yield canonical_plan(plan)
    yield layout_digest
    yield initial_weights_digest
    yield from _code_fields(code_digests)


def _code_fields(code_digests: Mapping[str, bytes]) -> Iterator[bytes]:
    yield len(code_digests).to_bytes(8, "big")
    for name, digest in sorted(code_digests.items()):
        yield name.encode()
        yield digest


def code_digest(code_digests: Mapping[str, bytes]) -> bytes:
    """Return the 32 bytes that stand for all code of a plan: what a site names in `policy.module_code`.

    Args:
        code_digests: as for `plan_digest`.
    """
    return _digest(itertools.chain((CODE_LABEL,), _code_fields(code_digests)))


def beginning_digest(initial: InitialSection) -> bytes:
    """Return the 32 bytes that stand for all that a run begins with: a site names it in `policy.initial_weights`.

    They cover the weights, their scaling and threshold, and the state of a continued run.

    Args:
        initial: the plan's `training.initial`.
    """
    return _digest(iter((BEGINNING_LABEL, canonical_json(stated(initial)))))


def weights_digest(vector: bytes | memoryview) -> bytes:
    """Return the digest of a model's flat vector.

    Args:
        vector: its little-endian bytes, in the plan's width.
    """
    return _digest(iter((WEIGHTS_LABEL, vector)))


def canonical_plan(plan: Plan) -> bytes:
    """Return the one spelling of a plan, as this module's header describes it."""
    return canonical_json(stated(plan))


def stated(section: Section) -> dict[str, object]:
    """Return what a section says beyond its defaults, by key; inner sections likewise."""
    told: dict[str, object] = {}
    for name, field in type(section).model_fields.items():
        raw = getattr(section, name)
        if raw is field.default:
            continue
        value = _plain(raw)
        if name == "categorical" and isinstance(section, CsvData):
            value = _ordered(section.categorical)
        # Compared as they are spelt: to Python, 1 equals True.
        if field.is_required() or _spelt(value) != _spelt_default(type(section), name):
            told[name] = value
    return told


@functools.cache
def _spelt_default(kind: type[Section], name: str) -> str:
    return _spelt(_plain(kind.model_fields[name].default))


def _plain(value: object) -> object:
    if isinstance(value, Section):
        return stated(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _ordered(columns: Mapping[str, object]) -> object:
    """Return columns as a mapping where they are in the order of their names, otherwise as names and values."""
    return _plain(columns if list(columns) == sorted(columns) else tuple(columns.items()))


def canonical_json(values: Mapping[str, object]) -> bytes:
    """Return the one spelling of nested values, as this module's header describes it: what is hashed or signed."""
    return _spelt(values).encode("ascii")


def _spelt(value: object) -> str:
    return _SPELLING.encode(_canonical(value))


def _canonical(value: object) -> object:
    if isinstance(value, float):
        # The word keeps 1.0 apart from the text "0x1.0000000000000p+0".
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_canonical(item) for item in value]
    return value


def _digest(fields: Iterator[bytes | memoryview]) -> bytes:
    sha = hashlib.sha256()
    for field in fields:
        sha.update(memoryview(field).nbytes.to_bytes(8, "big"))
        sha.update(field)
    return sha.digest()


def format_digest(digest: bytes) -> str:
    """Return a digest as people see it: "sha256:" and 64 hex digits."""
    return _PREFIX + digest.hex()


def parse_digest(text: str) -> bytes:
    """Return the 32 bytes of a digest.

    Raises:
        PlanError: the text is not "sha256:" and 64 lower-case hex digits.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise PlanError(f"{text[:80]!r} is not a digest", "it is 'sha256:' and 64 hex digits")
    return bytes.fromhex(match[1])
