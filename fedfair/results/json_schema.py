"""The JSON Schema of a result file, for programs of others that read one.

It follows from the model in `document.py`. Keys that are not named there are allowed: a newer version may write
them.
"""

from __future__ import annotations

from pydantic import TypeAdapter

from fedfair.plan.meanings import DescribedSchema
from fedfair.results.document import FORMAT, JsonObject, ResultDocument, UnfinishedResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def result_schema() -> JsonObject:
    """Return the schema (JSON Schema, draft 2020-12) of a result: of a run with figures, or of one without."""
    shapes: TypeAdapter[ResultDocument | UnfinishedResult] = TypeAdapter(ResultDocument | UnfinishedResult)
    return {
        "$schema": DIALECT,
        "title": FORMAT,
        "description": "The result of a run of fedfair; losses are in nats, or as plan.loss says.",
        **shapes.json_schema(schema_generator=DescribedSchema),
    }
