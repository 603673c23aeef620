"""A plan: one call, not yet made."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from outlast.core.codec import digest

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Generic[R_co]):
    """One call, not yet made: activity, key and arguments as canonical JSON. What an approval covers.

    Made by `activity.plan(…)`. Two plans are equal when their digests are.
    """

    activity: str
    key: str
    arguments: bytes
    digest: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def approval_digest(self, tenant: str, run_id: str) -> str:
        """What an approval of this plan in this run is about: tenant, run, activity, rendered key, arguments (S-20)."""
        return digest(tenant, run_id, self.activity, self.key, self.arguments)
