"""The table of docs/reference/egress.md names every field of every message on the wire, and nothing else."""

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator
from typing import get_args, get_type_hints

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.ids import SumNumber
from fedfair.secagg import round_messages, setup_messages
from fedfair.secagg.messages import Kind
from fedfair.wire import frames
from fedfair.wire.v1 import federation_pb2 as pb
from tests.conftest import REPOSITORY

READERS = {
    "aggregator",
    "aggregator, then every site",
    "aggregator, then only its receiver; what is inside, its receiver alone",
    "aggregator, then who voted",
    "aggregator; what is inside, their receivers alone",
    "each collaborator",
    "that collaborator",
    "that collaborator; what is inside, it alone",
    "the cohort",
    "who uploaded",
}
ABOUT_RECORDS = {"UploadStart.sha256", "Chunk.data"}
"""Nothing else may depend on a site's records; a new entry here needs a reason in the threat model."""


def rows() -> list[tuple[str, str, str]]:
    """Return each field by its path, with its readers and what it depends on; a row may name several of either."""
    text = (REPOSITORY / "docs" / "reference" / "egress.md").read_text(encoding="utf-8")
    table = text.split("<!-- messages -->")[1].split("<!-- /messages -->")[0]
    return [
        (f"{message}.{field}", readers, depends)
        for messages, readers, cell in re.findall(r"^\| (`[^|]+) \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
        for message in re.findall("`([^`]+)`", messages)
        for names, _, depends in (line.partition(": ") for line in cell.split("<br>"))
        for field in re.findall("`([^`]+)`", names)
    ]


def frame_types() -> set[type]:
    return set(get_args(frames.Frame))


def message_types() -> set[type]:
    return {
        found
        for module in (setup_messages, round_messages)
        for _, found in inspect.getmembers(module, inspect.isclass)
        if found.__module__ == module.__name__ and hasattr(found, "encode")
    }


def fields_of(message: type, prefix: str) -> Iterator[str]:
    """Yield every field of a message by its path; those of a value inside it one by one."""
    known = {"QueryStep": QueryStep, "SumNumber": SumNumber}
    hints = get_type_hints(message, localns=known)
    for field in dataclasses.fields(message):
        inner = [
            part for part in (get_args(hints[field.name]) or (hints[field.name],)) if part is not types.NoneType
        ]
        (value,) = inner if len(inner) == 1 else (None,)
        if dataclasses.is_dataclass(value) and isinstance(value, type) and value not in frame_types():
            yield from fields_of(value, f"{prefix}.{field.name}")
        else:
            yield f"{prefix}.{field.name}"


def test_every_field_of_every_message_is_in_the_table_once_and_nothing_else_is() -> None:
    said = [path for path, _, _ in rows()]
    declared = {
        path for message in frame_types() | message_types() for path in fields_of(message, message.__name__)
    }
    assert len(said) == len(set(said))
    assert set(said) == declared


def test_the_messages_that_are_looked_at_are_all_that_the_wire_has() -> None:
    values = {"AggregatorFrame", "CollaboratorFrame"}  # one of the others each, and nothing beside it
    assert {message.__name__ for message in frame_types()} == set(pb.DESCRIPTOR.message_types_by_name) - values
    # `Opened` alone is the name of a record of the audit.
    assert {message.__name__.removesuffix("Message") for message in message_types()} == {
        "".join(part.capitalize() for part in kind.name.split("_")) for kind in Kind
    }


def test_the_readers_are_a_closed_list_and_what_depends_on_records_is_said_aloud() -> None:
    assert {readers.strip() for _, readers, _ in rows()} <= READERS
    assert {path for path, _, depends in rows() if "the records" in depends} == ABOUT_RECORDS
    assert all(depends.strip() for _, _, depends in rows())
