"""Saved views: named queries of lists of runs."""

from pydantic import Field

from outlast.models import Instant, Model


class SavedView(Model):
    """Query of a list of runs with a name."""

    name: str = Field(examples=["declined cards of acme"])
    query: str = Field(description="Words and terms, as the list of runs takes them.", examples=["cause:3f2a9c01d7be"])
    by: str = Field(description="Who saved it last.")
    at: Instant = Field(description="When it was saved last.")


class SavedViewList(Model):
    """Views of a tenant, ordered by name."""

    views: list[SavedView]
