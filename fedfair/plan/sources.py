"""The plan's sources of records, and how one machine divides them; paths of a site never stand here.

Decides what may be written under `task.data` and `task.partition`. Reading files is the business of
`fedfair.tables`; each site's own paths are `site_config.py`'s. A file named here is one that a simulation reads,
relative to the workspace; a deployed site reads its own files by the same schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, cast, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag

from fedfair.plan.csv_table import CsvData
from fedfair.plan.data_section import DataSection
from fedfair.plan.fields import (
    Fault,
    Items,
    PositiveFloat,
    PositiveInt,
    Scalar,
    Section,
    Text,
    is_reference,
    rule_error,
)

BUILT_IN = ("breast-cancer", "digits")
BUILT_IN_INPUTS: Mapping[str, int] = MappingProxyType({"breast-cancer": 30, "digits": 64})
"""How many features the records of each have."""


class MnistData(DataSection):
    """The four idx files of MNIST (Fashion-MNIST and the like have the same form)."""

    reader: ClassVar[str] = "mnist"
    inputs: ClassVar[int] = 28 * 28
    has_numeric_columns: ClassVar[bool] = False

    folder: Text | None = None
    """folder of the idx files, for a simulation; a path inside the workspace"""

    @property
    def has_own_tests(self) -> bool:
        """Always: two of the files hold them."""
        return True


class ImageData(DataSection):
    """A folder of images with a table of attributes, as CelebA has it."""

    reader: ClassVar[str] = "images"
    has_numeric_columns: ClassVar[bool] = False

    folder: Text | None = None
    """folder of the images, for a simulation; a path"""

    attributes: Text | None = None
    """table with one line per image (CSV, or CelebA's text), for a simulation; a path"""

    label: Text
    """attribute to predict; -1 or 0 is class 0, 1 is class 1"""

    height: PositiveInt = Field(default=64, le=4096)
    """rows of pixels after resizing, 1 to 4096"""

    width: PositiveInt = Field(default=64, le=4096)
    """columns of pixels after resizing, 1 to 4096"""

    channels: Literal[1, 3] = 3
    """1 for grey, 3 for colour"""

    collaborator: Text | None = None
    """attribute that says which collaborator owns an image, for a simulation"""

    keep: Items[Text] = ()
    """attributes kept for partitions and group reports"""

    @property
    def known_inputs(self) -> int:
        """The pixels of every channel."""
        return self.channels * self.height * self.width

    @property
    def answer_column(self) -> str:
        """The attribute to predict."""
        return self.label

    @property
    def named_classes(self) -> tuple[str, ...]:
        """Without the attribute, and with it."""
        return f"not {self.label}", self.label

    @property
    def class_values(self) -> tuple[tuple[Scalar, ...], ...]:
        """The values of either."""
        return (-1, 0), (1,)


class AcsEmploymentData(DataSection):
    """The ACS Employment task over person records of the US Census (PUMS), as Ding et al. 2021 define it."""

    reader: ClassVar[str] = "acs_employment"
    inputs: ClassVar[int] = 16
    missing_number: ClassVar[Literal["zero"]] = "zero"
    class_names: ClassVar[tuple[str, ...]] = ("not employed", "employed")

    train: Text | None = None
    """PUMS person file, for a simulation; a path"""

    test: Text | None = None
    """PUMS person file with the test rows; a path"""

    states: Items[PositiveInt] = ()
    """FIPS codes of the states to keep; empty keeps all"""

    working_age_only: bool = False
    """true keeps ages 17 to 89 only (ACSEmploymentFiltered of folktables)"""

    collaborator: Text | None = None
    """PUMS column that says which collaborator owns a row (RAC1P, ST), for a simulation"""

    keep: Items[Text] = ()
    """PUMS columns kept for partitions and group reports"""

    @property
    def answer_column(self) -> str:
        """The employment status."""
        return "ESR"


class EicuData(DataSection):
    """Hospital mortality from the tables of the eICU Collaborative Research Database."""

    reader: ClassVar[str] = "eicu"
    inputs: ClassVar[int] = 63
    missing_number: ClassVar[Literal["mean"]] = "mean"
    leaves_gaps: ClassVar[bool] = True
    class_names: ClassVar[tuple[str, ...]] = ("Alive", "Expired")
    person_column: ClassVar[str | None] = "uniquepid"

    folder: Text | None = None
    """folder of the tables, for a simulation; a path"""

    collaborator: Text | None = None
    """column that says which collaborator owns a stay (region, hospitalid)"""

    keep: Items[Text] = ()
    """columns kept for partitions and group reports"""

    @property
    def answer_column(self) -> str:
        """Whether somebody was alive at the end of the stay."""
        return "hospitaldischargestatus"


class SourceSection(Section):
    """A mapping of one key, the name of a source, to its own keys."""

    @property
    def section(self) -> DataSection:
        """The source's own keys."""
        (found,) = (getattr(self, name) for name in type(self).model_fields)
        return cast("DataSection", found)


class CsvSource(SourceSection):
    """`{csv: {...}}`."""

    csv: CsvData
    """a table"""


class MnistSource(SourceSection):
    """`{mnist: {}}`."""

    mnist: MnistData
    """idx files"""


class ImageSource(SourceSection):
    """`{images: {...}}`."""

    images: ImageData
    """a folder of images with a table of attributes"""


class AcsEmploymentSource(SourceSection):
    """`{acs_employment: {...}}`."""

    acs_employment: AcsEmploymentData
    """person records of the US Census"""


class EicuSource(SourceSection):
    """`{eicu: {...}}`."""

    eicu: EicuData
    """intensive care stays"""


MappedSource = (
    Annotated[CsvSource, Tag("<csv>")]
    | Annotated[MnistSource, Tag("<mnist>")]
    | Annotated[ImageSource, Tag("<images>")]
    | Annotated[AcsEmploymentSource, Tag("<acs_employment>")]
    | Annotated[EicuSource, Tag("<eicu>")]
)
"""The table of sources: a row for each, its mapping and the tag that a fault has as its place."""

SOURCES: Mapping[str, type[SourceSection]] = MappingProxyType(
    {next(iter(kind.model_fields)): kind for kind, _ in map(get_args, get_args(MappedSource))}
)
"""The mapping of every source, by its key."""


def _kind(value: object) -> str | None:
    if isinstance(value, str):
        return "<name>"
    if isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in SOURCES:
        return f"<{next(iter(value))}>"
    return next((f"<{key}>" for key, kind in SOURCES.items() if isinstance(value, kind)), None)


def _check_name(name: str) -> str:
    if name not in BUILT_IN and not is_reference(name):
        raise rule_error(
            f"{name!r} is neither built in nor of the form module:function",
            f"write {' or '.join(BUILT_IN)}, module:function, or a mapping such as {{csv: {{label: ...}}}}",
        )
    return name


DataSource = Annotated[
    Annotated[str, AfterValidator(_check_name), Tag("<name>")] | MappedSource,
    Discriminator(
        _kind,
        custom_error_type="data_source",
        custom_error_message="must be a built-in name, module:function, or a mapping with exactly one of "
        + ", ".join(SOURCES),
    ),
]


def section_of(data: DataSource) -> DataSection | None:
    """Return the keys of a source; None of a name, which has none."""
    return None if isinstance(data, str) else data.section


FRACTIONS_TOLERANCE = 1e-9
"""How far fractions may sum from 1: far above the rounding of decimal fractions, far below one record."""


class Partition(Section):
    """How one data set is divided over the collaborators."""

    scheme: Literal["label", "column", "random", "dirichlet", "contiguous"]
    """label (classes in turn), column (by values), random, dirichlet, or contiguous (in order)"""

    column: Text | None = None
    """column whose values are divided; only with scheme: column"""

    alpha: PositiveFloat | None = None
    """concentration, above 0; small is unequal; only with scheme: dirichlet"""

    fractions: Items[PositiveFloat] | None = None
    """share of each collaborator, in their order, summing to 1; null for equal shares; only with scheme: random or
    contiguous"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        for key, value, schemes in (
            ("column", self.column, ("column",)),
            ("alpha", self.alpha, ("dirichlet",)),
            ("fractions", self.fractions, ("random", "contiguous")),
        ):
            if value is not None and self.scheme not in schemes:
                message = f"has no meaning with scheme: {self.scheme}"
                yield Fault((key,), message, f"remove it, or use scheme: {' or '.join(schemes)}")
        if self.scheme == "column" and self.column is None:
            yield Fault(("column",), "is missing; scheme: column needs it", "name the column")
        if self.scheme == "dirichlet" and self.alpha is None:
            yield Fault(("alpha",), "is missing; scheme: dirichlet needs it", "give a concentration such as 0.5")
        if self.fractions is not None and not math.isclose(
            math.fsum(self.fractions), 1.0, abs_tol=FRACTIONS_TOLERANCE
        ):
            total = math.fsum(self.fractions)
            yield Fault(("fractions",), f"sum to {total:.12g}, not 1", "give shares that sum to 1")
