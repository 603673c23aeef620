"""The transactions of the largest commits hold what core/commit.py counts, and fit into DynamoDB."""

from typing import Any

import pytest

from outlast.core.commit import Commit, actions_of
from outlast.core.limits import ACTIONS_MAX, LARGE_ITEMS_MAX, TRANSACTION_BYTES
from outlast.core.rows.run_rows import RUN
from outlast.store.batch import Batch
from outlast.store.dynamodb.items import Revision
from outlast.store.dynamodb.landing import _assumed
from outlast.store.dynamodb.transact import Receipt, actions
from tests.conformance.subject import run_row
from tests.core.test_actions import MOVES, commits_of, largest
from tests.dynamodb.item_sizes import item_bytes
from tests.models.world import at


def transaction(commit: Commit, run: Any) -> list[dict[str, Any]]:
    """Return the actions of a commit whose rows are as it says, for a tenant with subscriptions."""
    found = _assumed((commit,))
    runs = {key: Revision(run if key == run[:2] else run_row(str(key[1]), str(key[0])), 0) for key in found.runs}

    def read(kind: Any, key: Any) -> Any:
        return runs[key].run if kind is RUN and key in runs else found.others.get((kind.name, key))

    batch = Batch(read, at(5), subscribed_tenants=frozenset({run.tenant}))
    batch.land(commit)
    receipt = Receipt("writer", 0, 1, "0/0")
    return actions("env", batch, (commit,), receipt, runs, lease_end=lambda worker: 0, shards={})


@pytest.mark.parametrize("large", [False, True], ids=["many", "large"])
@pytest.mark.parametrize("name", MOVES)
def test_the_largest_moves_fit_into_transactions(name: str, large: bool) -> None:
    for rows, commit in commits_of(largest(name, large), MOVES[name]):
        built = transaction(commit, rows.run)
        further = sum("#body#" in action.get("Put", {}).get("Item", {}).get("sk", {}).get("S", "") for action in built)
        assert further <= LARGE_ITEMS_MAX
        assert len(built) == actions_of(commit, further) <= ACTIONS_MAX
        assert sum(item_bytes(action["Put"]["Item"]) for action in built if "Put" in action) < TRANSACTION_BYTES
