"""Acts of people and programs across runs."""

from typing import Literal, TypeAlias

from pydantic import Field

from outlast.models import Instant, Model, PagedList

AuditKind: TypeAlias = Literal[
    "decision", "reassign", "effect", "attention", "cancel", "budget", "signal", "fork", "job", "detach",
    "assign", "pause", "resume", "webhook",
]  # fmt: skip
"""Kinds of acts."""


class AuditEntry(Model):
    """Act of a caller: who did what, when, on which run, and why."""

    at: Instant
    by: str = Field(description="The caller: a person, or a program with a token.")
    kind: AuditKind
    what: str = Field(description="The act in words.", examples=["approved: Refund 12.00 EUR to acme"])
    run: str = Field(description="Run that it concerns; '' if it concerns the tenant.")
    about: str = Field(description="Approval, effect or webhook that it concerns; '' for none.")
    reason: str = Field(description="Reason that the caller gave; '' if none was.")


class AuditList(PagedList):
    """Page of acts, newest first."""

    entries: list[AuditEntry]
