"""The trip's travel agency as a receiver of our world: it outlives the processes, and only the card dedupes."""

from examples import trip
from outlast import this_call
from tests.crash import world


class Receiver(trip.Agency):
    """Acts and remembers in the world's file; an undo is an act of its own, under its own key."""

    def act(self, what: str) -> str:
        """See Agency."""
        return world.receive(this_call().idempotency_key, _label(), what=what, dedupes="card" in this_call().key)

    def find(self) -> str | None:
        """See Agency."""
        return world.ask(this_call().idempotency_key, _label()) or None


def open_agency() -> None:
    """Called in the process of a life: the trip's calls go there."""
    trip.agency = Receiver()


def _label() -> str:
    return f"{this_call().run_id} call {this_call().key}"
