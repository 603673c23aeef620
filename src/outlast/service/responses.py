"""Response bodies of HTTP alone: health and problems. All others are in `outlast.models`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from outlast.models import Model


class Health(Model):
    """Health of this process."""

    status: Literal["ok", "not ready"]
    checks: dict[str, str] = Field(default_factory=dict)


class InvalidField(Model):
    """Invalid parameter or field."""

    path: str
    text: str


class Problem(BaseModel):
    """Error as defined in RFC 9457, with a stable code and a hint."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    hint: str
    code: str = Field(description="Stable error code.", examples=["OUT-402"])
    refusal: str = Field(description="Cause, if one code has several.", examples=["decided"])
    request_id: str
    problems: list[InvalidField] | None = None
