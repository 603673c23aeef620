"""What every answer is: typed, and made from a view that the command line shows too."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Json = Annotated[Any, Field(description="Any JSON value.")]
Count = Annotated[int, Field(ge=0)]


class Shape(BaseModel):
    """An answer. A field that a view has and its model has not is a mistake that a test finds, and no caller's."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)


class Page(Shape):
    """Part of a list: go on with `next_cursor`, which the header `Link` has too; '' at the end."""

    next_cursor: str = Field("", description="Opaque; for this list, its filters and its caller's tenant only.")
