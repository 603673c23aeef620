"""The trip's travel agency as a receiver that survives the processes. Only its card service deduplicates."""

from examples import trip
from outlast import this_call
from tests.crash import receiver


class Receiver(trip.Agency):
    """Executes calls and records them in the receiver's file. An undo is a separate call with another key."""

    def act(self, what: str) -> str:
        return receiver.receive(this_call().idempotency_key, _label(), what=what, dedupes="card" in this_call().key)

    def find(self) -> str | None:
        return receiver.ask(this_call().idempotency_key, _label()) or None


def open_agency() -> None:
    """Make the trip's calls reach the receiver. Called in the child process."""
    trip.agency = Receiver()


def _label() -> str:
    return f"{this_call().run_id} call {this_call().key}"
