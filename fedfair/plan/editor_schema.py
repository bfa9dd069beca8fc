"""The JSON Schema of `plan.yaml`, by which an editor completes keys, explains them and marks mistakes.

It follows from the sections of `schema.py`: keys, types, ranges, defaults and descriptions. Rules across keys are
not in it, nor are the forms of names, so that `fedfair plan check` has the last word.
"""

from __future__ import annotations

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from fedfair.plan.meanings import DescribedSchema
from fedfair.plan.schema import Plan


class _Schema(DescribedSchema):
    """Lets a value fit several branches of a choice: to JSON, 1 is an integer and a number."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return a choice as anyOf: a function of ours says which branch is meant, not one key."""
        choice = super().tagged_union_schema(schema)
        return {"anyOf" if key == "oneOf" else key: value for key, value in choice.items()}


def plan_schema() -> JsonSchemaValue:
    """Return the schema (JSON Schema, draft 2020-12) of `plan.yaml`."""
    return {"$schema": _Schema.schema_dialect, **Plan.model_json_schema(schema_generator=_Schema)}
