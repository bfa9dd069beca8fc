"""Blocks of a text table that pandas parses, wherever the result is that of reading it field by field.

Decides which blocks of a file these are: text of one encoding without NUL, lines that all have as many fields as
the header, and quotes that begin and end their fields. Nothing is guessed or refused here: the first block that
does not fit raises NotPlain, and `text_file.py` continues from there field by field. A column is given as numbers
where each of its texts can mean nothing else; its texts are parsed again only where somebody asks for them.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedfair.plan.csv_table import CsvData
from fedfair.tables.file_kinds import READ_ERRORS, open_binary
from fedfair.tables.number_texts import EXACT
from fedfair.tables.text_table import BLANKS, Columns, TextTable
from fedfair.tables.typed_values import marks_as_numbers, texts_of

if TYPE_CHECKING:
    import pandas as pd

BLOCK_BYTES = 1 << 22
MAX_BLOCK_BYTES = 1 << 26
"""The most that is read in search of the end of a row."""

MAX_LINE = csv.field_size_limit()

_BOM = codecs.BOM_UTF8
_NEWLINE, _QUOTE, _BLANK = b'\n" '


class NotPlain(Exception):  # noqa: N818 - not an error: the rest is read field by field
    """The next block of the file is not for pandas."""


def plain_blocks(
    path: Path,
    header: Sequence[str],
    header_lines: int,
    spec: CsvData,
    wanted: Collection[str],
    numeric: Collection[str],
) -> Iterator[TextTable]:
    """Yield the rows of a file in blocks, each of at least one row.

    Args:
        path: the file, plain or gzip.
        header: the names of all columns.
        header_lines: how many lines come before the first row.
        spec: the plan's description of the table.
        wanted: the columns to keep.
        numeric: columns that are used as numbers.

    Raises:
        NotPlain: what comes next is not for pandas, or cannot be read.
    """
    parser = _BlockParser(path, header, spec, wanted, numeric)
    line = header_lines + 1
    try:
        for block in _blocks(path, spec, header_lines):
            table = parser.table(block, line)
            line += block.count(b"\n")
            if len(table):
                yield table
    except (*READ_ERRORS, UnicodeError) as error:
        raise NotPlain from error


class _BlockParser:
    """Turns the text of whole rows into a table; arguments as of `plain_blocks`."""

    def __init__(
        self, path: Path, header: Sequence[str], spec: CsvData, wanted: Collection[str], numeric: Collection[str]
    ) -> None:
        self._path, self._spec = path, spec
        self._separator = b"\t" if spec.separator == BLANKS else spec.separator.encode()
        self._width = len(header)
        self._places = {name: place for place, name in enumerate(header) if name in wanted}
        # A date, or a number with marks of thousands, is read by its text.
        plain = () if spec.thousands else tuple(name for name in numeric if name not in spec.dates)
        self._numbers = tuple(self._places[name] for name in plain)
        # Of a mark such as -9 pandas would take -9.0 as well.
        missing = [mark for mark in spec.missing_values if not marks_as_numbers([mark])]
        self._missing = {self._places[name]: missing for name in plain if name not in spec.answer_columns}
        self._marks = {self._places[name]: _marks_by_text(spec, name) for name in plain}

    def table(self, block: bytes, line: int) -> TextTable:
        """Return the rows of a block, (n >= 0), whose first line has the number `line`.

        Raises:
            NotPlain: not every row has as many fields as the header, or quotes do not begin and end fields.
        """
        lines = _lines_of_rows(block, self._separator[0], self._width) + line
        if not len(lines):
            return TextTable(self._path, {}, lines)
        places = list(self._places.values())
        try:
            frame = self._parsed(block, places, self._numbers)
            found = {place for place in self._numbers if not self._is_doubtful(frame[place], place, block)}
        except (ValueError, OverflowError):
            frame, found = self._parsed(block, places, ()), set()
        if len(frame) != len(lines):
            raise NotPlain

        def text(name: str) -> NDArray[np.str_]:
            place = self._places[name]
            is_number = frame[place].dtype == np.float64
            return texts_of((self._parsed(block, (place,), ()) if is_number else frame)[place])

        numbers = {name: frame[place].to_numpy() for name, place in self._places.items() if place in found}
        return TextTable(self._path, Columns(self._places, text), lines, numbers=numbers)

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

    def _is_doubtful(self, values: pd.Series, place: int, block: bytes) -> bool:
        """Return whether the texts of a column must be seen to know what they mean."""
        numbers = values.to_numpy()
        if (np.abs(numbers) >= EXACT).any() or (self._marks[place] and np.isin(numbers, self._marks[place]).any()):
            return True
        missing = np.isnan(numbers)
        # Of a column of true and false, in any case of letters, pandas makes 1 and 0.
        letters = block.lower()
        has_truth = b"true" in letters or b"false" in letters
        return has_truth and bool(np.all(missing | (numbers == 0) | (numbers == 1)))


def _exact() -> dict[str, Any]:
    """Return the option that makes pandas read decimals exactly; newer versions always do, and warn of it."""
    import pandas as pd  # only who reads a table waits for it

    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    return {} if version >= (3, 1) else {"float_precision": "round_trip"}


def _marks_by_text(spec: CsvData, column: str) -> tuple[float, ...]:
    """Return the numbers that may mean a missing value, if they are written in one way and not in another."""
    marks = (*spec.missing_values, *spec.missing_values_of.get(column, ()))
    return marks_as_numbers(
        [
            str(mark).replace(spec.decimal, ".")
            for mark in marks
            if isinstance(mark, str) or (isinstance(mark, int) and abs(mark) >= EXACT)
        ]
    )


def _blocks(path: Path, spec: CsvData, skipped: int) -> Iterator[bytes]:
    """Yield a file after its first lines in blocks of whole rows, as `_checked` returns them."""
    rest, comment = b"", None if spec.comment is None else spec.comment.encode()
    names = None if spec.columns is None else _names_as_a_row(spec)
    for text in _texts(path, spec.encoding):
        rest += text
        while skipped and b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            skipped -= 1
            if b"\r" in line.removesuffix(b"\r"):
                raise NotPlain
        end = 0 if skipped else rest.rfind(b"\n") + 1
        if end:
            whole = _without_comments(rest[:end], comment)
            cut = _end_of_row(whole)
            yield _checked(whole[:cut], spec, names)
            rest = whole[cut:] + rest[end:]
        if len(rest) > MAX_BLOCK_BYTES:
            raise NotPlain
    if rest and not skipped:
        yield _checked(_without_comments(rest + b"\n", comment), spec, names)


def _names_as_a_row(spec: CsvData) -> re.Pattern[bytes]:
    """Return the line that names the columns, which is no record, however its fields are padded or quoted."""
    names = (re.escape(name.encode().replace(b'"', b'""')) for name in spec.columns or ())
    separator = b"\t" if spec.separator == BLANKS else re.escape(spec.separator.encode())
    pad = rb'[\s"]*'
    return re.compile(b"^" + pad + (pad + separator + pad).join(names) + pad + b"$", re.MULTILINE)


def _texts(path: Path, encoding: str) -> Iterator[bytes]:
    """Yield a file's text in UTF-8, in pieces that end anywhere."""
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
    with open_binary(path) as file:
        if decoder is None:
            yield file.read(BLOCK_BYTES).removeprefix(_BOM)
        while raw := file.read(BLOCK_BYTES):
            yield raw if decoder is None else decoder.decode(raw).encode()
        if decoder is not None:
            yield decoder.decode(b"", final=True).encode()


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


def _checked(block: bytes, spec: CsvData, names: re.Pattern[bytes] | None) -> bytes:
    """Return a block of whole rows as pandas is to see it.

    Raises:
        NotPlain: it might see something else.
        UnicodeError: the block is no text.
    """
    if b"\0" in block or _has_other_line_ends(block):
        raise NotPlain
    if not block.isascii():
        if _BOM in block:
            raise NotPlain
        block.decode()  # a UnicodeError where it is no text
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if spec.separator == BLANKS:
        if b'"' in block or b"\x0b" in block or b"\x0c" in block:
            raise NotPlain
        block = b"\n".join(b"\t".join(line.split()) for line in block.split(b"\n"))
    if names is not None and names.search(block):
        raise NotPlain
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


def _lines_of_rows(block: bytes, separator: int, width: int) -> NDArray[np.int64]:
    """Return for each row of a block the line where it begins, from 0.

    Raises:
        NotPlain: not every row has as many fields as the header, or quotes do not begin and end fields.
    """
    data = np.frombuffer(block, np.uint8)
    marks, ends = data == separator, data == _NEWLINE
    lines = np.flatnonzero(ends)
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
    return np.searchsorted(lines, starts)


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
