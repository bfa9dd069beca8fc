"""Breaks a message or a file in ways that its reader might not expect; every draw comes from one seeded generator.

Bytes know nothing of a form. Trees are those of JSON and YAML: keys go, come twice, change type, grow deep. Fields
are those of the protobuf wire format. Lines are those of a log, members those of a zip, rows those of a database.
"""

import copy
import io
import json
import random
import sqlite3
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import yaml

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""From a generator, one example and all examples of its kind to what is read."""

NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
VALUES: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"),
    "", "a", "\x1b[31m", "\u202e", "é" * 40, "x" * 3000, "../../etc/passwd", "/dev/zero", "2026-02-30", "0x10",
    "sha256:" + "0" * 64, [], {}, [[]], [0] * 300, {"": None}, "!!python/object/apply:os.system [id]", "-", "~",
)  # fmt: skip
MOST_BYTES = 1 << 20


def broken_bytes(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Flip, cut, repeat, insert, splice or overwrite; one to four times."""
    data = bytearray(raw)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        length = draw.choice((1, 2, 4, 8, draw.randint(0, 64)))
        match draw.randrange(8):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = draw.randbytes(length)
            case 3:
                data[at:at] = data[at : at + length] * draw.randint(1, 4)
            case 4:
                del data[at:]
            case 5:
                number, size = draw.choice(NUMBERS), draw.choice((1, 2, 4, 8))
                order = draw.choice(("little", "big"))
                data[at : at + size] = (number % 256**size).to_bytes(size, order)  # type: ignore[arg-type]
            case 6:
                other = draw.choice(others)
                data[at:] = other[draw.randrange(len(other) + 1) :]
            case _:
                data += draw.randbytes(length)
    return bytes(data[:MOST_BYTES])


def broken_fields(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Break a protobuf message at one of its fields, at any depth."""
    fields = _fields(raw)
    if not fields or draw.random() < 0.2:
        return broken_bytes(draw, raw, others)
    at = draw.randrange(len(fields))
    number, kind, value = fields[at]
    match draw.randrange(7):
        case 0:
            del fields[at]
        case 1:
            fields.insert(at, fields[draw.randrange(len(fields))])
        case 2:
            fields[at] = (draw.choice((0, 1, number + 1, 15, 16, 999, 2**29 - 1)), kind, value)
        case 3:
            draw.shuffle(fields)
        case 4 if kind == 2:
            fields[at] = (number, kind, broken_fields(draw, value, others))
        case 5 if kind == 2:
            fields[at] = (number, kind, draw.choice((b"", bytes(len(value) + 1), draw.randbytes(len(value)))))
        case _:
            fields[at] = (number, 0, _varint(draw.choice(NUMBERS))) if kind == 0 else (number, kind, value[:-1])
    return b"".join(
        _varint(number << 3 | kind) + (_varint(len(value)) + value if kind == 2 else value)
        for number, kind, value in fields
    )[:MOST_BYTES]


def broken_json(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Break a JSON document in its tree, in its text or in its bytes."""
    if draw.random() < 0.25:
        return broken_bytes(draw, raw, others)
    text = json.dumps(_broken_tree(draw, json.loads(raw)), indent=draw.choice((None, 2)))
    return _broken_text(draw, text).encode(errors="surrogatepass")[:MOST_BYTES]


def broken_yaml(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Break a YAML document in its tree, in its text or in its bytes."""
    chance = draw.random()
    if chance < 0.3:
        return broken_bytes(draw, raw, others)
    if chance < 0.4:
        return _yaml_trick(draw, raw)
    return yaml.safe_dump(_broken_tree(draw, yaml.safe_load(raw)), sort_keys=False, allow_unicode=True).encode(
        errors="surrogatepass"
    )[:MOST_BYTES]


def broken_lines(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Break a log of JSON lines: lines go, come twice, change places; or one of them is broken itself."""
    lines = raw.splitlines(keepends=True)
    at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case 3:
            lines[at] = broken_bytes(draw, lines[at], others)
        case 4:
            with suppress(ValueError):
                lines[at] = broken_json(draw, lines[at].strip(), others).replace(b"\n", b"") + b"\n"
        case _:
            return broken_bytes(draw, raw, others)
    return b"".join(lines)[:MOST_BYTES]


def broken_zip(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Break an archive: its bytes, or its members' names, sizes, kinds and contents."""
    if draw.random() < 0.4:
        return broken_bytes(draw, raw, others)
    names = (
        "../up",
        "/abs",
        "a/../b",
        "plan/plan.yaml",
        "C:\\x",
        "",
        "a" * 300,
        "x\0y",
        "plan//x",
        "PLAN/plan.yaml",
    )
    stream = io.BytesIO()
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(stream, "w") as target,
        zipfile.ZipFile(io.BytesIO(raw)) as source,
    ):
        warnings.simplefilter("ignore")
        members = [(info, source.read(info)) for info in source.infolist()]
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(members)) if members else 0
            match draw.randrange(6):
                case 0 if members:
                    del members[at]
                case 1 if members:
                    members.append(members[at])
                case 2 if members:
                    info, content = members[at]
                    members[at] = (info, broken_bytes(draw, content, [content or b"\0"]))
                case 3:
                    members.append((zipfile.ZipInfo(draw.choice(names)), draw.randbytes(draw.randint(0, 40))))
                case 4:
                    bomb = zipfile.ZipInfo(f"plan/{draw.randrange(9)}")
                    bomb.compress_type = zipfile.ZIP_DEFLATED
                    members.append((bomb, bytes(draw.choice((1 << 16, 1 << 21)))))
                case _ if members:
                    info = copy.copy(members[at][0])
                    info.external_attr = draw.choice((0o120777, 0o40755, 0o100777, 0o10644)) << 16
                    members[at] = (info, members[at][1])
                case _:
                    pass
        for info, content in members:
            target.writestr(info, content)
    return stream.getvalue()[:MOST_BYTES]


def broken_rows(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Break a database: its bytes, or a cell, a row, a column or a table through SQL."""
    if draw.random() < 0.5:
        return broken_bytes(draw, raw, others)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "rows"
        path.write_bytes(raw)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection, suppress(sqlite3.Error):
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            table = draw.choice(tables)
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            column = draw.choice(columns)
            value = draw.choice(
                (None, -1, 2**63 - 1, 1e308, "", "{}", "x" * 3000, b"", bytes(40), draw.randbytes(32))
            )
            match draw.randrange(6):
                case 0:
                    connection.execute(f"DELETE FROM {table} WHERE rowid % 2 = {draw.randrange(2)}")  # noqa: S608 - our own
                case 1:
                    connection.execute(f"DROP TABLE {table}")
                case 2:
                    connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
                case 3:
                    connection.execute(f"PRAGMA user_version = {draw.choice((0, 2, 99))}")
                case _:
                    connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))  # noqa: S608 - our own
        return path.read_bytes()[:MOST_BYTES]


def _fields(raw: bytes) -> list[tuple[int, int, bytes]]:
    """Return number, wire type and value of each field; nothing where the bytes are no message."""
    found, at = [], 0
    while at < len(raw):
        key, at = _read_varint(raw, at)
        kind, start = key & 7, at
        if kind == 0:
            _, at = _read_varint(raw, at)
        elif kind in {1, 5}:
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, start = _read_varint(raw, at)
            at = start + length
        else:
            return []
        if at > len(raw):
            return []
        found.append((key >> 3, kind, raw[start:at]))
    return found


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(raw) and shift < 70:
        number |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not raw[at - 1] & 0x80:
            return number, at
    return 0, len(raw) + 1


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _broken_tree(draw: random.Random, tree: object) -> object:
    """Change one to three places of a tree of dictionaries and lists."""
    root = [copy.deepcopy(tree)]
    for _ in range(draw.randint(1, 3)):
        owners: list[tuple[object, object]] = []
        _places(root, owners)
        owner, key = draw.choice(owners)
        match draw.randrange(7):
            case 0 if owner is not root:
                del owner[key]  # type: ignore[attr-defined]
            case 1 if isinstance(owner, dict):
                owner[draw.choice((f"{key}x", "", "format", "name", 3, None, "__class__"))] = owner[key]
            case 2 if isinstance(owner, list):
                owner.append(copy.deepcopy(owner[key]))  # type: ignore[call-overload]
            case 3:
                other, at = draw.choice(owners)
                owner[key] = copy.deepcopy(other[at])  # type: ignore[index]
            case 4:
                deep: object = owner[key]  # type: ignore[index]
                for _ in range(draw.choice((1, 2, 60))):
                    deep = [deep]
                owner[key] = deep  # type: ignore[index]
            case 5 if isinstance(owner[key], int | float) and not isinstance(owner[key], bool):  # type: ignore[index]
                owner[key] = draw.choice((-owner[key], owner[key] + 1, owner[key] * 1e9, str(owner[key])))  # type: ignore[index]
            case _:
                owner[key] = copy.deepcopy(draw.choice(VALUES))  # type: ignore[index]
        if not isinstance(root[0], dict | list):
            break
    return root[0]


def _places(owner: object, found: list[tuple[object, object]]) -> None:
    keys = owner.items() if isinstance(owner, dict) else enumerate(owner) if isinstance(owner, list) else ()
    for key, value in list(keys):
        found.append((owner, key))
        _places(value, found)


def _broken_text(draw: random.Random, text: str) -> str:
    """Leave most texts as they are, and do to the others what no writer of JSON does."""
    match draw.randrange(12):
        case 0:
            return text + draw.choice((" ", "\n{}", "\0", ",", "]"))
        case 1:
            return "[" * 3000 + text
        case 2:
            return text.replace('": ', '": ' + draw.choice(("NaN, ", "1e999", "00", "'", "\\ud800")), 1)
        case 3:
            key = text[text.find('"') : text.find(":") + 1]
            return text.replace("{", "{" + key + " 1,", 1)
        case _:
            return text


def _yaml_trick(draw: random.Random, raw: bytes) -> bytes:
    tricks = (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (
            98 + n, 98 + n, *[97 + n] * 7) for n in range(9)),
        b"x: &x {y: *x}\n",
        b"? [a, b]\n: c\n",
        b"!!python/object/apply:os.system [id]\n",
        b"- " * 2000 + b"x\n",
        b"{" * 2000,
        b"%YAML 9.9\n---\n",
        b"---\na: 1\n---\nb: 2\n",
        b"\xff\xfe" + raw.decode(errors="replace").encode("utf-16-le"),
        b"\t" + raw,
        b"<<: {a: 1}\n",
        b"n: 1:30:30\nd: 2026-99-99\nb: !!binary '@@@'\n",
        b"i: 0b" + b"1" * 400 + b"\n",
    )  # fmt: skip
    trick = draw.choice(tricks)
    return draw.choice((trick, raw + b"\n" + trick, trick + raw))[:MOST_BYTES]
