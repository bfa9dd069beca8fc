"""Parses CSV with pandas when the result is identical to the field-by-field reader's.

Decides which blocks of a file pandas may parse: text of one encoding without NUL, lines that all have as many
fields as the header, and quotes that begin and end their fields. Nothing is guessed, and nothing is refused here:
whatever does not fit raises NotPlain, and `reading.py` reads the file again, which accepts it or says where the
fault is. Values are equal to the bit either way, and of a block nothing stays but what it became.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.csv_file import measured_answers
from fedfair.tables.file_kinds import READ_ERRORS, open_binary
from fedfair.tables.frames import BlockReader, FeatureStore, needed_columns
from fedfair.tables.number_texts import EXACT
from fedfair.tables.reading import BLANKS
from fedfair.tables.typed_values import marks_as_numbers

if TYPE_CHECKING:
    import pandas as pd

    from fedfair.tables.csv_file import CsvRecords

BLOCK_BYTES = 1 << 22
MAX_BLOCK_BYTES = 1 << 26
"""The most that is read in search of the end of a row."""

MAX_LINE = csv.field_size_limit()

_BOM = codecs.BOM_UTF8
_NEWLINE, _QUOTE, _BLANK = b'\n" '


class NotPlain(Exception):  # noqa: N818 - not an error: the other reader goes on
    """The file, or a part of it, is not for pandas."""


def read_plain(
    path: Path, spec: CsvData, classes: int | None, extra: Collection[str], store: FeatureStore | None = None
) -> CsvRecords:
    """Return the records of a file.

    Args:
        path: the file, plain or gzip.
        spec: the plan's description of it.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps.
        store: where the features go; None for memory. It has taken some of them where NotPlain is raised.

    Raises:
        NotPlain: the file is not for pandas, has a fault, or cannot be read.
    """
    try:
        return _read(path, spec, classes, extra, store)
    except (DataError, *READ_ERRORS) as error:
        raise NotPlain from error


def _read(
    path: Path, spec: CsvData, classes: int | None, extra: Collection[str], store: FeatureStore | None
) -> CsvRecords:
    blocks = _blocks(path, spec)
    if spec.columns is None:
        header, first = _header(next(blocks, b""), spec)
        blocks = itertools.chain((first,), blocks)
    else:
        header = list(spec.columns)
        _check_names_are_no_record(spec)
    reader = BlockReader(header, spec, classes, extra, where=path, store=store, has_nulls=False)
    parser = BlockParser(header, spec, extra, reader.numeric)
    for block in blocks:
        reader.add(parser.frame(block))
        if reader.has_faults:
            raise NotPlain
    return reader.records()


class BlockParser:
    """Turns the text of whole rows into a frame: numbers where a column is numeric, texts elsewhere.

    Args:
        header: the names of all columns.
        spec: the plan's description of the table.
        extra: columns to keep raw beside those that the plan keeps.
        numeric: the numeric columns.
    """

    def __init__(
        self, header: Sequence[str], spec: CsvData, extra: Collection[str], numeric: Collection[str]
    ) -> None:
        self._spec = spec
        self._separator = b"\t" if spec.separator == BLANKS else spec.separator.encode()
        self._width = len(header)
        self._names = {header.index(name): name for name in needed_columns(spec, header, extra)}
        places = {name: place for place, name in self._names.items()}
        # A text is needed of what is kept or chosen by its text, and where a plain number is not meant.
        as_text = {*spec.categorical, *spec.rows, *spec.keep, *extra, *spec.dates}
        measured = measured_answers(spec)
        self._numbers = (
            () if spec.thousands else tuple(places[name] for name in (*numeric, *measured) if name not in as_text)
        )
        # Of a mark such as -9 pandas would take -9.0 as well.
        marks = [mark for mark in spec.missing_values if not marks_as_numbers([mark])]
        self._missing = {places[name]: marks for name in numeric}
        self._marks = {place: _marks_by_text(spec, self._names[place]) for place in self._numbers}

    def frame(self, block: bytes) -> pd.DataFrame:
        """Return the rows of a block, (n >= 0), with the columns that are needed.

        Raises:
            NotPlain: not every row has as many fields as the header, or quotes do not begin and end fields.
        """
        import pandas as pd  # only who reads a table waits for it

        count = _rows_of(block, self._separator[0], self._width)
        if not count:
            return pd.DataFrame({name: pd.Series(dtype=np.object_) for name in self._names.values()})
        try:
            frame = self._parsed(block, self._names, self._numbers)
        except (ValueError, OverflowError):
            frame = self._parsed(block, self._names, ())
        else:
            words = BlockWords(block)
            doubtful = [place for place in self._numbers if self._is_doubtful(frame[place], place, words)]
            if doubtful:
                texts = self._parsed(block, doubtful, ())
                # By name: pandas would give a list of columns its values in the order of the file.
                for place in doubtful:
                    frame[place] = texts[place]
        if len(frame) != count:
            raise NotPlain
        return frame.rename(columns=self._names)

    def _parsed(self, block: bytes, places: Collection[int], numbers: Collection[int]) -> pd.DataFrame:
        import pandas as pd  # only who reads a table waits for it

        try:
            parsed: pd.DataFrame = pd.read_csv(  # type: ignore[call-overload] # its stubs know no mixed dtypes
                io.BytesIO(block),
                sep=self._separator.decode(),
                decimal=self._spec.decimal,
                header=None,
                index_col=False,
                usecols=sorted(places),
                dtype={place: np.float64 if place in numbers else np.object_ for place in places},
                skipinitialspace=True,
                keep_default_na=False,
                na_values={place: self._missing.get(place, []) for place in numbers},
                **_exact(),
                engine="c",
                low_memory=False,
                encoding="utf-8",
            )
        except pd.errors.ParserError as error:
            raise NotPlain from error
        return parsed

    def _is_doubtful(self, values: pd.Series, place: int, words: BlockWords) -> bool:
        """Return whether the texts of a column must be seen to know what they mean."""
        numbers = values.to_numpy()
        if (np.abs(numbers) >= EXACT).any() or (self._marks[place] and np.isin(numbers, self._marks[place]).any()):
            return True
        missing = np.isnan(numbers)
        # Of a column of true and false pandas makes 1 and 0.
        return bool(np.all(missing | (numbers == 0) | (numbers == 1))) and words.has_truth


class BlockWords:
    """The words in a block that pandas takes for numbers, looked for when somebody asks.

    Args:
        block: its text.
    """

    def __init__(self, block: bytes) -> None:
        self._block = block

    @cached_property
    def has_truth(self) -> bool:
        """Whether "true" or "false" is somewhere, in any case of letters."""
        letters = self._block.lower()
        return b"true" in letters or b"false" in letters


def _exact() -> dict[str, Any]:
    """Return the option that makes pandas read decimals exactly; newer versions always do, and warn of it."""
    import pandas as pd  # only who reads a table waits for it

    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    return {} if version >= (3, 1) else {"float_precision": "round_trip"}


def _marks_by_text(spec: CsvData, column: str) -> list[float]:
    """Return the numbers that may mean a missing value, if they are written in one way and not in another."""
    found = []
    for mark in (*spec.missing_values, *spec.missing_values_of.get(column, ())):
        if isinstance(mark, str) or (isinstance(mark, int) and abs(mark) >= EXACT):
            try:
                found.append(float(str(mark).replace(spec.decimal, ".")))
            except ValueError:
                continue
    return found


def _check_names_are_no_record(spec: CsvData) -> None:
    """Give up where a line that names the columns would pass for a record, which the other reader refuses."""
    numeric = () if isinstance(spec.numeric, str) else spec.numeric
    if not any(re.search(r"[A-Za-z]{4}", name) for name in numeric) or "infinity" in map(str.lower, numeric):
        raise NotPlain


def _header(block: bytes, spec: CsvData) -> tuple[list[str], bytes]:
    """Return the names in the first line that is not empty, and what follows it."""
    while True:
        line, _, block = block.partition(b"\n")
        if line or not block:
            break
    separator = "\t" if spec.separator == BLANKS else spec.separator
    try:
        rows = list(csv.reader([line.decode()], delimiter=separator, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise NotPlain from error
    if len(rows) != 1 or not line.strip():
        raise NotPlain
    return [name.strip() for name in rows[0]], block


def _blocks(path: Path, spec: CsvData) -> Iterator[bytes]:
    """Yield a file in blocks of whole rows, as UTF-8 with a line feed after each, comments and tabs resolved."""
    rest, comment = b"", None if spec.comment is None else spec.comment.encode()
    for text in _texts(path, spec.encoding):
        rest += text
        end = rest.rfind(b"\n") + 1
        if not end:
            if len(rest) > MAX_BLOCK_BYTES:
                raise NotPlain
            continue
        whole = _without_comments(rest[:end], comment)
        cut = _end_of_row(whole)
        yield _checked(whole[:cut], spec)
        rest = whole[cut:] + rest[end:]
        if len(rest) > MAX_BLOCK_BYTES:
            raise NotPlain
    if rest:
        yield _checked(_without_comments(rest + b"\n", comment), spec)


def _texts(path: Path, encoding: str) -> Iterator[bytes]:
    """Yield a file's text in UTF-8, in pieces that end anywhere."""
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
    with open_binary(path) as file:
        is_first = True
        try:
            while raw := file.read(BLOCK_BYTES):
                if decoder is not None:
                    raw = decoder.decode(raw).encode()
                elif is_first:
                    raw = raw.removeprefix(_BOM)
                is_first = False
                yield raw
            if decoder is not None:
                yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise NotPlain from error


def _without_comments(block: bytes, comment: bytes | None) -> bytes:
    """Return lines with an empty one for each comment."""
    if comment is None or not (block.startswith(comment) or b"\n" + comment in block):
        return block
    return b"\n".join(b"" if line.startswith(comment) else line for line in block.split(b"\n"))


def _end_of_row(block: bytes) -> int:
    """Return where the last row ends, after its line feed; 0 where none does. The block ends with a line feed."""
    if b'"' not in block or not block.count(b'"') % 2:
        return len(block)
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((data == _NEWLINE) & (_quoted(data) == 0))
    return int(ends[-1]) + 1 if len(ends) else 0


def _quoted(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return 1 for every byte after an odd number of quotes, the quote itself among them, and otherwise 0."""
    parity: NDArray[np.uint8] = np.bitwise_and(np.cumsum(data == _QUOTE, dtype=np.uint8), np.uint8(1))
    return parity


def _checked(block: bytes, spec: CsvData) -> bytes:
    """Return a block of whole rows as pandas is to see it; raises NotPlain where it might see something else."""
    if b"\0" in block or _has_other_line_ends(block):
        raise NotPlain
    if not block.isascii():
        if _BOM in block:
            raise NotPlain
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise NotPlain from error
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if spec.separator == BLANKS:
        if b'"' in block or b"\x0b" in block or b"\x0c" in block:
            raise NotPlain
        return b"\n".join(b"\t".join(line.split()) for line in block.split(b"\n"))
    return block


def _has_other_line_ends(block: bytes) -> bool:
    """Return whether carriage returns stand anywhere but before a line feed that ends a row."""
    if b"\r" not in block:
        return False
    if block.count(b"\r") != block.count(b"\r\n"):
        return True
    if b'"' not in block:
        return False
    data = np.frombuffer(block, np.uint8)
    return bool(np.any(_quoted(data)[data == ord("\r")]))


def _rows_of(block: bytes, separator: int, width: int) -> int:
    """Return how many rows a block has.

    Raises:
        NotPlain: not every row has as many fields as the header, or quotes do not begin and end fields.
    """
    data = np.frombuffer(block, np.uint8)
    marks, ends = data == separator, data == _NEWLINE
    if b'"' in block:
        outside = _quoted(data) == 0
        _check_quotes(data, separator)
        marks, ends = marks & outside, ends & outside
    places = np.flatnonzero(ends)
    starts = np.concatenate(([0], places[:-1] + 1)) if len(places) else places
    filled = places > starts
    starts, places = starts[filled], places[filled]
    fields = np.flatnonzero(marks)
    if len(fields) != len(places) * (width - 1):
        raise NotPlain
    if len(places):
        rows = fields.reshape(len(places), width - 1)
        in_their_lines = np.all(rows[:, 0] >= starts) and np.all(rows[:, -1] < places)
        if not in_their_lines or np.max(places - starts) >= MAX_LINE:
            raise NotPlain
    return len(places)


def _check_quotes(data: NDArray[np.uint8], separator: int) -> None:
    """Raise NotPlain unless each quote begins or ends a field, or is one of two that stand for one within it."""
    quotes = np.flatnonzero(data == _QUOTE)
    if len(quotes) % 2:
        raise NotPlain
    opening, closing = quotes[0::2], quotes[1::2]
    after = data[np.minimum(closing + 1, len(data) - 1)]
    if not np.all((after == separator) | (after == _NEWLINE) | (after == _QUOTE)):
        raise NotPlain
    before = opening - 1
    doubled = np.concatenate(([False], before[1:] == closing[:-1])) if len(opening) else np.zeros(0, np.bool_)
    before = before[~doubled]
    while np.any(blank := (before >= 0) & (data[np.maximum(before, 0)] == _BLANK)):
        before = before - blank
    found = data[np.maximum(before, 0)]
    if not np.all((before < 0) | (found == separator) | (found == _NEWLINE)):
        raise NotPlain
