"""The one transaction of a judged commit: its actions, and the conditions that verify all that was assumed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.commit import Commit
from outlast.core.row_kind import Key
from outlast.store.batch import Batch
from outlast.store.dynamodb.items import Revision, Stamp

Action: TypeAlias = dict[str, dict[str, Any]]
"""One member of `TransactItems`: a Put, Update, Delete or ConditionCheck."""
LOCK_CONDITION: Final = "attribute_not_exists(pk) OR expires_at < :now_epoch"


class Receipt(NamedTuple):
    """The receipt that a transaction leaves: item `shard` of a writer goes from batch - 1 to `batch`.

    `settings`: the clock mapping and the subscribed tenants by which the commit was judged.
    """

    writer: str
    shard: int
    batch: int
    settings: str

    @property
    def stamp(self) -> Stamp:
        """Return the identity that each item of the transaction carries."""
        return Stamp(self.writer, self.shard, self.batch)


class Cost(NamedTuple):
    """Estimate of a transaction: its actions, write units and bytes of items."""

    actions: int
    units: int
    bytes: int


def actions(
    env: str,
    batch: Batch,
    commits: Sequence[Commit],
    receipt: Receipt,
    known: Mapping[Key, Revision],
    *,
    lease_end: Callable[[str], int],
    shards: Mapping[str, int],
) -> list[Action]:
    """Return the actions that land what `batch` judged; the receipt is the first.

    `commits`: those judged, in order. `known`: the runs by which they were judged. `lease_end`: real end of the lease
    of a worker. `shards`: number of receipts of each writer whose row is written.
    """
    raise NotImplementedError


def changed_runs(batch: Batch, known: Mapping[Key, Revision]) -> dict[Key, Revision]:
    """Return the runs that the batch changes, as they are once it has landed."""
    raise NotImplementedError


def receipt_action(env: str, receipt: Receipt) -> Action:
    """Return the update that leaves a receipt if the writer is open and its settings are still in force."""
    raise NotImplementedError


def refuse_late(env: str, receipt: Receipt) -> dict[str, Any]:
    """Return the UpdateItem after which a transaction with this receipt can never land. It leaves the next receipt."""
    raise NotImplementedError


def cost(transaction: Sequence[Action]) -> Cost:
    """Return the estimate for a transaction; items that it only updates, checks or deletes count as one KB."""
    raise NotImplementedError
