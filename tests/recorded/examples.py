"""The workflows of the examples whose runs are recorded, and what their code reads from the environment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.acquisition.workflow import acquisition
from examples.desk.workflow import desk
from examples.negotiation.workflow import negotiation
from examples.researcher.workflow import research
from examples.trip import trip
from outlast.flow.workflow import Workflow
from tests.crash.refund import refund

FOLDER = Path(__file__).parent
NOWHERE = "http://127.0.0.1:9"
"""Nothing listens there: a play must not need a receiver."""
WORKFLOWS: dict[str, Workflow[Any, Any, Any]] = {
    "trip": trip,
    "refund": refund,
    "negotiation": negotiation,
    "desk": desk,
    "acquisition": acquisition,
    "researcher": research,
}


def ready(set_: Callable[[str, str], None], *, asks_model: bool = False) -> None:
    """Set the addresses that the examples read, to a place where nothing listens.

    `asks_model`: the example asks the model that the environment names.
    """
    if asks_model:
        set_("OUTLAST_MODEL", "chat:planner")
    for name in ("DESK_URL", "ACQUISITION_URL", *(("OUTLAST_MODEL_URL",) if asks_model else ())):
        set_(name, NOWHERE)
