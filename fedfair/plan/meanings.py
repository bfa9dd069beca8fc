"""The meaning of every key: the text under it in its class, for faults, pages and schemas.

Decides where a text is looked for. It is read from the source when somebody asks for it, which is seldom: a fault
names the remedy, an editor or a page explains the keys. A start does not wait for it.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


@cache
def meanings(section: type[BaseModel]) -> Mapping[str, str]:
    """Return what each key of a section means; a key that says it in its `Field` has that text."""
    ours = [base for base in section.__mro__ if issubclass(base, BaseModel) and base is not BaseModel]
    found = dict(itertools.chain.from_iterable(map(_under_keys, reversed(ours))))
    told = {name: field.description or found.get(name) for name, field in section.model_fields.items()}
    return {name: text for name, text in told.items() if text}


def _under_keys(section: type) -> Iterator[tuple[str, str]]:
    for one, other in itertools.pairwise(_bodies(section.__module__).get(section.__name__, ())):
        match one, other:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                yield name, " ".join(text.split())


@cache
def _bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """Return the body of every class of one of our modules; nothing where only compiled modules are installed."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


class DescribedSchema(GenerateJsonSchema):
    """A JSON Schema whose keys say what they mean."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a section with the meaning of its keys."""
        made = super().model_schema(schema)
        section: type[BaseModel] = schema["cls"]
        for name, text in meanings(section).items():
            made["properties"][name]["description"] = text
        return made
