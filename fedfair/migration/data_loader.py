"""OpenFL's PyTorchDataLoader as a loader of fedfair: from a folder to features and labels.

Decides what the old code says of shape and classes, and whether the loader can travel: where it reads a path
that `plan/data.yaml` gives, and keeps training and validation records in attributes of OpenFL's names. A loader
that takes a shard's number, or that needs OpenFL, becomes a function `records` that refuses in words until
somebody has written it. Source: OpenFL 1.5 to 1.9, `openfl.federated.data`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fedfair.migration.carried_class import ClassRules, Method, carry_class, dotted
from fedfair.migration.findings import Finding, FindingKind
from fedfair.migration.source_modules import Collection, Obstacle, SourceModule, unfilled
from fedfair.plan.yaml_reader import Value

PYTORCH = "PyTorchDataLoader"
RECORDS = ("X_train", "y_train", "X_valid", "y_valid")
_CALLS = frozenset({"get_train_loader", "get_valid_loader", "set_logger"})

UNFINISHED = '''
def records(folder):
    """Return this site's records from a folder: features (records, ...), floats; labels (records,), from 0."""
    # TODO by hand, then remove this line. MIGRATION.md says why it could not be carried over.
    raise NotImplementedError("{path}: the loader of {origin} is not written yet: complete `records`")
'''

LOAD = '''
def records(folder):
    """Return this site's records: what {origin} kept for training and for validation.

    `folder` is `data.root` of the site's own collaborator.yaml. The plan divides the records anew.
    """
    loader = {call}
    features = numpy.concatenate([numpy.asarray(loader.X_train), numpy.asarray(loader.X_valid)])
    labels = numpy.concatenate([numpy.asarray(loader.y_train), numpy.asarray(loader.y_valid)])
    if features.dtype == numpy.uint8:
        features = features.astype(numpy.float32)  # the numbers as they are: fedfair divides bytes by 255
    return features, labels.astype(numpy.int64)
'''


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Facts about the data that the loader's code states in numbers.

    Attributes:
        input_shape: of one record; None where the code does not say.
        classes: None where the code does not say.
        place: file and line of the class.
    """

    input_shape: tuple[int, ...] | None
    classes: int | None
    place: str


@dataclass(frozen=True, slots=True)
class SitePaths:
    """Where the sites' records are, by `plan/data.yaml`.

    Attributes:
        roots: for each site the folder; None where the file gives a shard's number or nothing.
        file: the file's name in every folder; empty where the paths are folders.
        are_shards: whether the values are numbers of shards of one data set.
    """

    roots: Mapping[str, str | None]
    file: str
    are_shards: bool


@dataclass(frozen=True, slots=True)
class MigratedLoader:
    """The loader's part of the new module.

    Attributes:
        pieces: source texts, in order; the last is the function `records`.
        is_whole: whether it runs as it is.
        findings: about its code.
    """

    pieces: tuple[str, ...]
    is_whole: bool
    findings: tuple[Finding, ...]


def site_paths(paths: Mapping[str, str]) -> SitePaths:
    """Return where the sites' records are.

    Args:
        paths: by site, the text that `plan/data.yaml` gives it.
    """
    shards = bool(paths) and all(text.lstrip("-").isdigit() or not text for text in paths.values())
    if shards:
        return SitePaths(dict.fromkeys(paths), "", are_shards=True)
    split = {site: PurePosixPath(text) for site, text in paths.items()}
    names = {path.name for path in split.values()}
    if len(names) == 1 and all(path.suffix for path in split.values()):
        return SitePaths({site: str(path.parent) for site, path in split.items()}, names.pop(), are_shards=False)
    return SitePaths(dict(paths), "", are_shards=False)


def data_facts(module: SourceModule, node: ast.ClassDef) -> DataFacts:
    """Return what the class says of the data in numbers."""
    shapes = [*_values(node, ("feature_shape", "input_shape")), *_returned(node, "get_feature_shape")]
    classes = [*_values(node, ("num_classes", "n_classes")), *_returned(node, "get_num_classes")]
    shape = next((found for one in shapes for found in [_shape(one)] if found is not None), None)
    count = next((one for one in classes if isinstance(one, int) and not isinstance(one, bool) and one > 1), None)
    return DataFacts(shape, count, module.place(node))


def migrate_loader(
    module: SourceModule,
    node: ast.ClassDef,
    settings: Mapping[str, Value],
    where: SitePaths,
    collection: Collection,
    *,
    path: str,
) -> MigratedLoader:
    """Return the loader's part of the new module.

    Args:
        module: of the loader.
        node: its class.
        settings: `data_loader.settings`.
        where: what `plan/data.yaml` gives the sites.
        collection: gets the imports and definitions that the loader needs.
        path: of the new module, for its own words.
    """
    rules = ClassRules(
        base="object",
        entries=("__init__",),
        parameter="",
        start="",
        inherited=frozenset(),
        dropped_attributes=frozenset({"logger", "train_loader", "val_loader", "valid_loader"}),
        dropped_calls=_CALLS,
        rewrite=lambda _: None,
        owner=PYTORCH,
    )
    carried = carry_class(module, node, rules, collection)
    obstacles = [*_unfit(module, node, where, carried.attributes), *collection.obstacles]
    origin = f"{module.path} ({node.name})"
    if obstacles:
        told = [Finding(FindingKind.BY_HAND, one.place, one.name, "", "task.data", one.words) for one in obstacles]
        return MigratedLoader((UNFINISHED.format(path=path, origin=origin).strip(),), False, tuple(told))
    collection.imports["import numpy"] = None
    call = _call(node, settings, where.file)
    pieces = (*collection.pieces, carried.text, LOAD.format(call=call, origin=origin).strip())
    words = (
        "its training and validation records are read together; test_fraction and validation_fraction divide them"
    )
    return MigratedLoader(
        pieces, True, (Finding(FindingKind.CARRIED_OVER, module.place(node), node.name, "", "task.data", words),)
    )


def _unfit(
    module: SourceModule, node: ast.ClassDef, where: SitePaths, attributes: Iterable[str]
) -> list[Obstacle]:
    place, found = module.place(node), unfilled(module)
    if PYTORCH not in {dotted(base).rpartition(".")[2] for base in node.bases}:
        found.append(
            Obstacle(place, node.name, f"does not derive from {PYTORCH}: write what it reads in `records`")
        )
    if where.are_shards:
        words = (
            "plan/data.yaml gives it the number of a shard: write how one site's own files are read in `records`"
        )
        found.append(Obstacle(place, node.name, words))
    missing = [name for name in RECORDS if name not in attributes]
    if missing:
        words = f"does not set self.{', self.'.join(missing)}: write what it reads in `records`"
        found.append(Obstacle(place, node.name, words))
    start = next((one for one in node.body if isinstance(one, Method) and one.name == "__init__"), None)
    if start is not None and "data_path" not in {one.arg for one in start.args.args}:
        found.append(
            Obstacle(module.place(start), node.name, "takes no data_path: write what it reads in `records`")
        )
    return found


def _call(node: ast.ClassDef, settings: Mapping[str, Value], file: str) -> str:
    start = next(one for one in node.body if isinstance(one, Method) and one.name == "__init__")
    named = {one.arg for one in (*start.args.args, *start.args.kwonlyargs)}
    path = f"str(folder / {file!r})" if file else "str(folder)"
    takes = {
        name: repr(value)
        for name, value in {"batch_size": 32, **settings}.items()
        if name in named or (start.args.kwarg is not None and name != "batch_size" and name.isidentifier())
    }
    return f"{node.name}({', '.join([f'data_path={path}', *(f'{name}={text}' for name, text in takes.items())])})"


def _values(node: ast.ClassDef, attributes: tuple[str, ...]) -> list[object]:
    return [
        _literal(one.value)
        for one in ast.walk(node)
        if isinstance(one, ast.Assign)
        and any(dotted(target).removeprefix("self.") in attributes for target in one.targets)
    ]


def _returned(node: ast.ClassDef, method: str) -> list[object]:
    return [
        _literal(one.value)
        for function in node.body
        if isinstance(function, Method) and function.name == method
        for one in ast.walk(function)
        if isinstance(one, ast.Return) and one.value is not None
    ]


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def _shape(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 4:
        return None
    sizes = tuple(one for one in value if isinstance(one, int) and not isinstance(one, bool) and one > 0)
    return sizes if len(sizes) == len(value) else None
