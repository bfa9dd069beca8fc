"""The schema of a plan, drafted from one site's own file, for people to review.

Decides how a file of unknown form is read: its separator, comment lines, and whether its first line names the
columns. It is looked over once, column by column, and from the counts is decided what a column seems to be, which
is said where it may be something else: `# ambiguous` in the draft, and a
sentence on the terminal. Of the file, only these texts get into the draft: names of columns, values of categories
and of the label that at least two records share, and marks of missing values. No value of a column of numbers
does, and a column in which every record has its own value is left out.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedfair.errors import DataError
from fedfair.plan.csv_table import MIN_CLASSES
from fedfair.plan.fields import Scalar
from fedfair.tables.file_kinds import NUL, READ_ERRORS, guessed_encoding, is_parquet, open_binary, refuse_workbook
from fedfair.tables.number_texts import DATE_FORMS, FORMS, NumberForm, date_form, year_of_text
from fedfair.tables.text_file import BlankReader, TableForm, TextFile
from fedfair.tables.text_table import BLANKS, SEPARATORS, refuse_twice, require_columns

MAX_DISTINCT = 100_000
"""Different texts of a column that are counted one by one; a column of more is known by its kind alone."""

SNIFFED_LINES = 200
MARKS_OF_COMMENTS = ("#", "|", "%")
PLAIN = FORMS[0]
MISSING = frozenset(
    ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", ".", "-", "--", "#N/A")
)
"""Texts that usually mean that there is no value."""

MIN_SHARED = 2
"""Records that share a value of a category before it is written down."""

MAX_CODES = 10
"""Different whole numbers that a column may have to be read as categories."""

MAX_CATEGORIES, MIN_RECORDS_EACH = 50, 4
MAX_CLASSES = 10
SMALL_FILE = 100
MAX_TEXT = 60

_IDENTIFIER = re.compile(
    r"(^|[_\W])(id|ids|uuid|mrn|key|nr|no|number|index|record|patient|subject)$", re.IGNORECASE
)
_LABEL = re.compile(r"(?i:outcome|label|target|class|y|died|death|num|diagnosis|income)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS_OF_YAML = frozenset(("null", "true", "false", "yes", "no", "on", "off"))
_LOW_MARKS = (-1.0, -9.0, -99.0, -999.0, -9999.0)
_HIGH_MARKS = (99.0, 999.0, 9999.0, 99999.0)
_USUAL_MARKS = ("", "?", "NA")


@dataclass
class SurveyedColumn:
    """The counts of one column.

    Attributes:
        name: from the first line, or made up.
        counts: how often each text occurs; of a wide column, those of its first part.
        rows: records that were counted.
        is_wide: whether there are more texts than are counted.
        forms: of a wide column, the forms of numbers that all its texts have, the missing ones aside.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    is_wide: bool = False
    forms: tuple[NumberForm, ...] = FORMS

    def add(self, texts: Sequence[str]) -> None:
        """Count the texts of some records."""
        self.rows += len(texts)
        if not self.is_wide:
            self.counts.update(texts)
            self.is_wide = len(self.counts) > MAX_DISTINCT
            if self.is_wide:
                self._narrow(self.present)
        else:
            self._narrow([text for text in texts if text not in MISSING])

    def _narrow(self, texts: Sequence[str]) -> None:
        self.forms = tuple(form for form in self.forms if all(map(form.fits, texts)))

    def has_numbers(self, form: NumberForm) -> bool:
        """Return whether all texts but the missing ones are numbers of a form."""
        return form in self.forms if self.is_wide else all(map(form.fits, self.present))

    @property
    def present(self) -> list[str]:
        """Return the counted texts that are values."""
        return [text for text in self.counts if text not in MISSING]

    @property
    def missing(self) -> list[str]:
        """Return the texts that mean a missing value, as they occur."""
        return [text for text in self.counts if text in MISSING]

    @property
    def is_distinct(self) -> bool:
        """Return whether no two records have one value; of a wide column, as far as it was counted."""
        return all(self.counts[text] == 1 for text in self.present)


@dataclass(frozen=True, slots=True)
class CsvSurvey:
    """A table, looked over.

    Attributes:
        encoding: of the text; utf-8 where there is none.
        separator: between two fields; a comma where the file is no text.
        comment: what a line begins with that is no record; None where no line does.
        has_header: whether the first line names the columns.
        columns: in the file's order.
        records: how many there are.
    """

    encoding: str
    separator: str
    comment: str | None
    has_header: bool
    columns: tuple[SurveyedColumn, ...]
    records: int


def survey_csv(path: Path) -> CsvSurvey:
    """Look a table over.

    Raises:
        DataError: the file cannot be read, is empty, or is no table of at least two columns.
    """
    if is_parquet(path):
        return _surveyed_parquet(path)
    refuse_workbook(path)
    encoding = guessed_encoding(path) or "utf-8"
    first = _first_lines(path, "utf-8-sig" if encoding == "utf-8" else encoding)
    comment = _comment(first)
    lines = [line for line in first if comment is None or not line.startswith(comment)]
    separator = _separator(path, lines)
    width = next(len(row) for row in _rows(lines, separator) if row)
    # Whether line 1 names the columns is known at the end, so it is read as a record.
    form = TableForm(
        [f"{NUL}{place}" for place in range(width)], separator, comment, encoding=encoding, drafted=True
    )
    columns, has_header, records = _surveyed(path, TextFile(path, form))
    return CsvSurvey(encoding, separator, comment, has_header, columns, records)


def _first_lines(path: Path, codec: str) -> list[str]:
    try:
        with io.TextIOWrapper(open_binary(path), encoding=codec, newline="") as file:
            first = list(itertools.islice(file, SNIFFED_LINES))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}", "name a CSV file, plain or gzip"
        ) from error
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as a table: {error}", "write it as UTF-8 text, one record on each line"
        ) from error
    if not any(line.strip() for line in first):
        raise DataError(f"{path} is empty", "name a file with a header and records")
    return first


def _rows(lines: Sequence[str], separator: str) -> Iterator[list[str]]:
    """Return the rows of the first lines, of which the last may be cut within a quoted field."""
    if separator == BLANKS:
        return BlankReader(iter(lines))
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _comment(lines: Sequence[str]) -> str | None:
    """Return the mark of a first line that is no record: it has other fields than the line after it."""
    mark = lines[0][:1]
    if mark not in MARKS_OF_COMMENTS or len(lines) < 2 or lines[1].startswith(mark):
        return None
    alike = any(lines[0].count(one) == lines[1].count(one) > 0 for one in SEPARATORS if one != mark)
    return None if alike else mark


def _separator(path: Path, lines: Sequence[str]) -> str:
    """Return the mark that divides the first lines into the most fields, equally many in each."""
    # A mark that divides every line alike, the header too, goes before one that stands in most of them.
    found: dict[str, tuple[bool, int]] = {}
    widths = {mark: _widths(lines, mark) for mark in SEPARATORS}
    blanks = widths.pop(BLANKS)
    for mark, counts in widths.items():
        width, times = counts.most_common(1)[0] if counts else (1, 0)
        if width > 1 and times >= 0.9 * counts.total():
            found[mark] = (times == counts.total(), width)
    if not any(is_even for is_even, _ in found.values()) and len(blanks) == 1 and 1 not in blanks:
        return BLANKS
    if not found:
        marks = ", ".join(SEPARATORS.values())
        raise DataError(
            f"{path} has one column", f"name a table with a label and a feature, and a {marks} between fields"
        )
    return max(found, key=lambda mark: found[mark])


def _widths(lines: Sequence[str], separator: str) -> Counter[int]:
    """Return how many rows have each number of fields; none where a mark cannot be what divides them."""
    try:
        return Counter(len(row) for row in _rows(lines, separator) if row)
    except csv.Error:
        return Counter()


def _surveyed_parquet(path: Path) -> CsvSurvey:
    """Look a table of typed columns over, by the plain texts of its values; lists and records are left out."""
    from fedfair.tables.parquet_file import ParquetTable
    from fedfair.tables.typed_values import texts_of

    table = ParquetTable(path)
    columns = {name: SurveyedColumn(name) for name in table.flat}
    for frame in table.frames(table.flat):
        for name, column in columns.items():
            column.add(texts_of(frame[name], where=f"{path}, column '{name}'").tolist())
    if not table.rows:
        raise DataError(f"{path} has no records", "name a file with at least one record")
    return CsvSurvey("utf-8", ",", None, True, tuple(columns.values()), table.rows)


def _surveyed(path: Path, file: TextFile) -> tuple[tuple[SurveyedColumn, ...], bool, int]:
    first: list[str] = []
    columns: tuple[SurveyedColumn, ...] = ()
    for block in file.blocks(file.header):
        texts = [block.columns[name].tolist() for name in file.header]
        if not columns:
            first = [column.pop(0) for column in texts]
            columns = tuple(map(SurveyedColumn, first))
        for column, found in zip(columns, texts, strict=True):
            column.add(found)
    has_header = not _is_record(columns)
    if has_header:
        refuse_twice(f"{path} has", first)
    else:
        for number, (column, text) in enumerate(zip(columns, first, strict=True), 1):
            column.name = f"column_{number}"
            column.add((text,))
    records = columns[0].rows
    if not records:
        raise DataError(f"{path} has a header but no records", "name a file with at least one record")
    return columns, has_header, records


def _is_record(columns: Sequence[SurveyedColumn]) -> bool:
    """Return whether the first line looks like a record: it has numbers, or texts that come again below it.

    What is taken for names goes into the plan, so a doubt counts as a record.
    """
    again = sum(column.name != "" and column.name in column.counts for column in columns)
    has_number = any(form.fits(column.name) for column in columns for form in FORMS)
    return has_number or 2 * again >= len(columns)


@dataclass
class _Guess:
    """The guesses so far, with the form of the file's numbers."""

    form: NumberForm = PLAIN
    dates: dict[str, str] = field(default_factory=dict)
    numeric: dict[str, str] = field(default_factory=dict)
    categorical: dict[str, tuple[list[Scalar], str]] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note_doubt(self, column: SurveyedColumn, doubt: str) -> None:
        """Say what is doubtful about a column, if anything is."""
        if doubt:
            self.notes.append(f"ambiguous: column {column.name!r}: {doubt}")


def draft_schema(path: Path, label: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return a schema for a file, to be reviewed, and what is to be said of it.

    Args:
        path: a CSV file, plain or gzip.
        label: the column to predict; None to guess it.

    Raises:
        DataError: the file is no table, has no column that could be the label, or none that could be a feature.
    """
    survey = survey_csv(path)
    guess = _Guess(_number_form(survey))
    if not survey.has_header:
        guess.notes.append(
            "line 1 looks like a record, so columns are called column_1, column_2, ...: name them under columns"
        )
    _note_form(survey, guess)
    chosen, doubt = _label(path, survey, label, guess.form)
    label_lines = list(_label_lines(path, chosen, doubt, guess))
    for column in survey.columns:
        if column is not chosen:
            _guess(column, guess)
    if not guess.numeric and not guess.categorical:
        why = "; ".join(f"{name!r} {reason}" for name, reason in guess.omitted.items())
        raise DataError(f"{path} has no column that could be a feature: {why}", "name a file with other columns")
    found = (
        f"{survey.records} records, {len(survey.columns)} columns: label {chosen.name!r}, "
        f"{len(guess.numeric)} numeric, {len(guess.categorical)} categorical, {len(guess.omitted)} left out"
    )
    notes = (
        found,
        *guess.notes,
        *(f"left out: column {name!r} {reason}" for name, reason in guess.omitted.items()),
    )
    return "\n".join(_lines(survey, label_lines, guess)) + "\n", notes


def _number_form(survey: CsvSurvey) -> NumberForm:
    """Return the form of numbers that most columns have; the plain one, or one with fewer marks, where equal."""
    return max(FORMS, key=lambda form: (sum(column.has_numbers(form) for column in survey.columns), form is PLAIN))


def _note_form(survey: CsvSurvey, guess: _Guess) -> None:
    """Say what was recognised of how the file is written, and what may be something else."""
    if survey.encoding != "utf-8":
        guess.notes.append(f"the text is no UTF-8: it is probably {survey.encoding}, which is stated as encoding")
    form = guess.form
    if form == NumberForm(","):
        grouped = NumberForm(".", ",")
        columns = [
            column for column in survey.columns if column.has_numbers(form) and not column.has_numbers(PLAIN)
        ]
        if all(column.has_numbers(grouped) for column in columns):
            guess.notes.append("ambiguous: commas may be decimal marks, as is stated, or marks of thousands")


def _label(path: Path, survey: CsvSurvey, wanted: str | None, form: NumberForm) -> tuple[SurveyedColumn, str]:
    """Return the column to predict, and what is doubtful about it; empty where somebody has named it."""
    by_name = {column.name: column for column in survey.columns}
    if wanted is not None:
        require_columns(path, by_name, (wanted,))
        return by_name[wanted], ""
    fitting = [column for column in survey.columns if _is_label(column, form)]
    named = [column for column in fitting if _LABEL.fullmatch(column.name)]
    if named:
        return named[-1], "guessed by its name"
    if fitting and fitting[-1] is survey.columns[-1]:
        return fitting[-1], "guessed: the last column"
    raise DataError(f"{path}: no column is clearly the label", "name the column to predict: --label COLUMN")


def _is_label(column: SurveyedColumn, form: NumberForm) -> bool:
    if column.name == "" or column.is_wide or len(column.present) > MAX_CLASSES:
        return False
    return len(_values(column, form)) >= MIN_CLASSES


def _label_lines(path: Path, column: SurveyedColumn, doubt: str, guess: _Guess) -> Iterator[str]:
    values = _values(column, guess.form)
    if not _is_label(column, guess.form):
        raise DataError(
            f"{path}: column {column.name!r} cannot be a label: too many values, or no two records share one",
            f"name a column of 2 to {MAX_CLASSES} classes with --label, or write label_above into a plan by hand",
        )
    if column.missing:
        gaps = sum(column.counts[text] for text in column.missing)
        wanted = f"rows: {{{_scalar(column.name)}: [{_listed(values)}]}}"
        guess.notes.append(f"{gaps} records have no label: remove them, or add {wanted} under csv")
    rare = sum(count < MIN_SHARED for count in map(column.counts.__getitem__, column.present))
    if rare:
        guess.notes.append(f"label {column.name!r}: {rare} classes have one record each and are not written down")
    mark = f"  # ambiguous: {doubt}; name another with --label" if doubt else ""
    if doubt:
        guess.notes.append(f"ambiguous: label {column.name!r} is {doubt}")
    yield f"label: {_scalar(column.name)}{mark}"
    if values != [0, 1]:
        yield f"label_values: [{_listed(values)}]  # classes 0, 1, ... in this order"


def _guess(column: SurveyedColumn, guess: _Guess) -> None:
    """Enter one column where it seems to belong."""
    name, present = column.name, column.present
    reason = _unusable(column, guess.form)
    if reason:
        guess.omitted[name or "(no name)"] = reason
        return
    if column.has_numbers(guess.form):
        _guess_number(column, guess)
        return
    date = date_form(present)
    if date is not None:
        _enter_date(column, date, guess)
        return
    if column.is_distinct:
        guess.omitted[name] = "is like an identifier: all its values are distinct"
    elif column.is_wide or len(present) > min(MAX_CATEGORIES, max(2, column.rows // MIN_RECORDS_EACH)):
        guess.omitted[name] = _many_texts(column, guess.form)
    else:
        _enter_category(column, "", guess)


def _unusable(column: SurveyedColumn, form: NumberForm) -> str:
    """Return why a column cannot be a feature, whatever it means; empty where it can."""
    name, present = column.name, column.present
    if not name or not name.isprintable() or len(name) > MAX_TEXT:
        return "has no usable name"
    if len(present) < 2:
        return "has no values" if not present else "has one value only"
    if not column.is_wide and any(not text.isprintable() or len(text) > MAX_TEXT for text in present):
        return "holds long or unprintable texts"
    other = next((one for one in FORMS if column.has_numbers(one)), form)
    if other != form and not column.has_numbers(form):
        kind = "commas" if other.decimal == "," else "points"
        return f"has decimal {kind} and other columns have not: write all numbers in one form"
    return ""


def _enter_date(column: SurveyedColumn, form: str, guess: _Guess) -> None:
    others = (
        one
        for _, one in DATE_FORMS
        if one != form and all(year_of_text(text, one) is not None for text in column.present)
    )
    other = next(others, None)
    doubt = "" if other is None else f"its dates may be {other} as well"
    guess.numeric[column.name] = doubt or "a date, as a year with its fraction; or leave it out"
    guess.dates[column.name] = form
    guess.note_doubt(column, doubt)


def _many_texts(column: SurveyedColumn, form: NumberForm) -> str:
    texts = [text for text in column.present if not form.fits(text)]
    if sum(column.counts[text] for text in texts) < column.rows / 5 and not column.is_wide:
        return "holds numbers and a few other texts: declare these in missing_values_of, or correct them"
    return "has too many different texts for a category"


def _guess_number(column: SurveyedColumn, guess: _Guess) -> None:
    name, values = column.name, _numbers(column.present, guess.form)
    whole = all(value.is_integer() for value in values)
    distinct = column.is_distinct and column.rows > 1
    codes = sorted(set(values))
    # Distinct whole numbers of many records, or without great gaps, are rather their numbers than a measurement.
    counts_up = whole and (column.rows >= SMALL_FILE or codes[-1] - codes[0] < 2 * len(codes))
    if distinct and (_IDENTIFIER.search(name) or counts_up):
        guess.omitted[name] = "is like an identifier: all its values are distinct"
    elif whole and len(codes) <= MAX_CODES and codes != [0.0, 1.0] and not distinct:
        _enter_category(column, "whole numbers, read as categories; or list it under numeric", guess)
    else:
        doubt = _doubt_about_number(column, codes, distinct=distinct)
        guess.numeric[name] = doubt
        guess.note_doubt(column, doubt)


def _doubt_about_number(column: SurveyedColumn, codes: Sequence[float], *, distinct: bool) -> str:
    """Return what may be meant instead of a measurement; no value is shown."""
    if distinct:
        return "all its values are distinct: a measurement, or an identifier?"
    if column.name.lower().endswith("id"):
        return "its name is that of an identifier"
    low, high = codes[0], codes[-1]
    if (low in _LOW_MARKS and codes[1] >= 0) or (high in _HIGH_MARKS and codes[-2] < high / 2):
        return "one number may mean a missing value: then state it in missing_values_of"
    return ""


def _enter_category(column: SurveyedColumn, doubt: str, guess: _Guess) -> None:
    values = _values(column, guess.form)
    rare = len(column.present) - sum(column.counts[text] >= MIN_SHARED for text in column.present)
    if len(values) < 2:
        guess.omitted[column.name] = "has fewer than two values that two records share"
        return
    guess.categorical[column.name] = (values, doubt)
    guess.note_doubt(column, doubt)
    if rare:
        guess.notes.append(
            f"column {column.name!r}: {rare} values of one record each are not written down; they count as other"
        )


def _numbers(texts: Sequence[str], form: NumberForm) -> list[float]:
    """Return texts that are numbers of a form as numbers."""
    return [number for text in texts if (number := form.number(text)) is not None]


def _values(column: SurveyedColumn, form: NumberForm) -> list[Scalar]:
    """Return the values that enough records share, in order; whole numbers as such."""
    shared: dict[str, int] = {}
    fit = all(map(form.fits, column.present))
    numbers = fit and all(number.is_integer() for number in _numbers(column.present, form))
    for text in column.present:
        key = str(int(_numbers([text], form)[0])) if numbers else text
        shared[key] = shared.get(key, 0) + column.counts[text]
    kept = [text for text, count in shared.items() if count >= MIN_SHARED]
    return sorted(map(int, kept)) if numbers else sorted(kept)


def _lines(survey: CsvSurvey, label_lines: Sequence[str], guess: _Guess) -> Iterator[str]:
    yield "  # Drafted from one site's own file: review every line, above all where it says `ambiguous`. A site"
    yield "  # names its file in its own collaborator.yaml. A simulation needs `train` and `collaborator` too."
    yield "  data:"
    yield "    csv:"
    body = [*_form_lines(survey, guess.form), *label_lines, *_feature_lines(guess), *_missing_lines(survey, guess)]
    yield from (f"      {line}" for line in body)
    for name, reason in guess.omitted.items():
        yield f"      # left out: {_scalar(name)} {reason}"
    yield "  test_fraction: 0.2               # held out of training: the certificate speaks about these people"
    yield "  validation_fraction: 0.2         # held out too: the run returns the model that does best on them"


def _form_lines(survey: CsvSurvey, form: NumberForm) -> Iterator[str]:
    if not survey.has_header:
        names = ", ".join(column.name for column in survey.columns)
        yield f"columns: [{names}]  # ambiguous: line 1 looks like a record; name the columns"
    stated = (
        ("separator", survey.separator, ","),
        ("comment", survey.comment, None),
        ("encoding", survey.encoding, "utf-8"),
        ("decimal", form.decimal, "."),
        ("thousands", form.thousands, None),
    )
    yield from (f"{key}: {_scalar(value)}" for key, value, usual in stated if value is not None and value != usual)


def _feature_lines(guess: _Guess) -> Iterator[str]:
    if guess.numeric:
        yield "numeric:"
    for name, doubt in guess.numeric.items():
        yield f"  - {_scalar(name)}{_remark(doubt)}"
    if guess.dates:
        yield "dates:                         # each is its year with its fraction"
    for name, form in guess.dates.items():
        yield f"  {_scalar(name)}: {json.dumps(form)}"
    if guess.categorical:
        yield "categorical:                   # others share one more column"
    for name, (values, doubt) in guess.categorical.items():
        yield f"  {_scalar(name)}: [{_listed(values)}]{_remark(doubt)}"


def _missing_lines(survey: CsvSurvey, guess: _Guess) -> Iterator[str]:
    gaps = [column for column in survey.columns if column.missing]
    policy = "mean" if any(column.name in guess.numeric for column in gaps) else "refuse"
    yield f"missing: {policy}                  # refuse | mean | zero"
    own = [f"{_scalar(column.name)}: own" for column in gaps if column.name in guess.categorical]
    if own:
        yield f"missing_of: {{{', '.join(own)}}}"
    features = [column for column in gaps if column.name in guess.numeric or column.name in guess.categorical]
    marks = dict.fromkeys((*_USUAL_MARKS, *(text for column in features for text in column.missing)))
    if len(marks) > len(_USUAL_MARKS):
        yield f"missing_values: [{', '.join(json.dumps(mark) for mark in marks)}]"


def _remark(doubt: str) -> str:
    return f"  # ambiguous: {doubt}" if doubt else ""


def _listed(values: Sequence[Scalar]) -> str:
    return ", ".join(_scalar(value) for value in values)


def _scalar(value: Scalar) -> str:
    """Return a value as the reader of plans reads it back."""
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    return json.dumps(value, ensure_ascii=False)
