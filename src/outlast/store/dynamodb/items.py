"""Rows as items: the table and the keys of each row, its attributes, and body items for rows that are too large.

The keys join the parts of a row's key with `#`. The byte order of the keys is the order of the rows' keys, because a
number is padded with zeros and a text is escaped so that it has no character up to `#` (`_part`). All kinds of a run
have the partition key `TENANT#RUN`. Rows of which every worker reads all, such as pauses, have the partition `*#`, so
that one query with strong reads finds them.

Each attribute has the name of its column. Two exceptions: the snapshot of an event is `sfn_state`, and the largest
columns of a row above ITEM_BYTES are in body items, whose sort keys are those of the row and `#body#00`, `#body#01` ….
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, get_type_hints

from outlast.core.commit import further_items
from outlast.core.events import EventType
from outlast.core.limits import ITEM_BYTES, KEY_BYTES_MAX, NAME_CHARS_MAX
from outlast.core.machine import NO_HOLDER
from outlast.core.mailbox import is_unknown
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, USAGE
from outlast.core.rows.graph_rows import GRAPH_KINDS, GRAPH_THREAD
from outlast.core.rows.limit_rows import CALL_USAGE, PAUSE, SLOT, TENANT_BUDGET
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, SUBSCRIPTION, UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import ATTRIBUTE, EVENT, FLAGGING, MESSAGE, RUN, TOKEN, Run, is_act
from outlast.core.rows.store_rows import META, REQUEST, STORE, TOPOLOGY, WORKER, WRITER
from outlast.core.rows.text_rows import MODEL_TEXT
from outlast.core.verbs import completed_node
from outlast.errors import Corrupt
from outlast.store.bounds import SHAPES
from outlast.store.dynamodb.connection import CHECKPOINTS, IDEMPOTENCY, RECOVERY_LOCKS, RUNS
from outlast.store.rows_in_memory import IS_OPEN
from outlast.store.sql import DECODE

Value: TypeAlias = dict[str, Any]
"""A value as DynamoDB has it: {"S": text}, {"N": digits} or {"B": bytes}."""
Item: TypeAlias = dict[str, Value]

PK: Final = "pk"
SK: Final = "sk"
DIGITS: Final = 19
"""Digits of a number in a key; as many as the greatest column of 64 bits has."""
BODY: Final = "#body#"
BODIES_MAX: Final = 100  # body items of one row, because their numbers have two digits
_BODY_KEY: Final = len(BODY) + 2
SNAPSHOT: Final = "sfn_state"
COMPLETED: Final = EventType.FINISHED_WELL.rpartition(".")[2]

INDEXES: Final[dict[str, dict[str, tuple[tuple[str, str], tuple[str, str]]]]] = {
    RUNS: {
        "due": (("due_lane", "S"), ("due_at", "N")),
        "owner": (("held_by", "S"), (PK, "S")),
        "listed": (("list", "S"), ("list_at", "N")),
        "queue": (("queue_of", "S"), ("created_at", "N")),
        "ended": (("ended_of", "S"), ("ended_at", "N")),
        "spent": (("spent_of", "S"), ("at", "N")),
        "asking": (("asking_of", "S"), ("asking_at", "N")),
        "lane": (("lane_of", "S"), (PK, "S")),
        "tree": (("tree_of", "S"), ("ended_at", "N")),
        "flagged": (("flagged_of", "S"), ("flagged_as", "S")),
    },
    IDEMPOTENCY: {
        "listed": (("list", "S"), ("list_at", "N")),
        "asking": (("asking_of", "S"), ("asking_at", "N")),
    },
    CHECKPOINTS: {},
    RECOVERY_LOCKS: {},
}
"""Attributes of the keys of each index. An item without its first attribute is not in the index."""
WHOLE: Final = ("spent",)
"""Indexes that hold whole items. The others hold keys only: their readers read the items strongly."""


class ItemPlace(NamedTuple):
    """Table and key of an item. The table of recovery locks has no sort key (`sk` is '')."""

    table: str
    pk: str
    sk: str

    def key(self) -> Item:
        """Return the key as a request has it."""
        return {PK: {"S": self.pk}, SK: {"S": self.sk}} if self.sk else {PK: {"S": self.pk}}


class KeyRange(NamedTuple):
    """Sort keys from `low` to `high` of one partition, both included."""

    table: str
    pk: str
    low: str
    high: str


class Stamp(NamedTuple):
    """Identity of the transaction that wrote an item: a writer, the number of its receipt item and its batch."""

    writer: str
    shard: int
    batch: int

    @property
    def text(self) -> str:
        """Return it as the attribute `receipt`."""
        return f"{self.writer}/{self.shard}/{self.batch}"


class Revision(NamedTuple):
    """A run's row, the version of the clock mapping by which its due_at was set, and whether it was due already then.

    If it was, for example by a message, no other mapping moves it.
    """

    run: Run
    mapping: int
    at_once: bool = False


class Torn(Exception):
    """The items of one row are of different writes, because they were not read in one instant. Read them again."""


# --- keys --------------------------------------------------------------------------------------
PART_BYTES_MAX: Final = 800
PART_CUT: Final = PART_BYTES_MAX - 34
_LOW: Final = re.compile(r"[\x00-\x24]+")  # characters up to `#`, and the escape character `$` itself


def _escaped(low: "re.Match[str]") -> str:
    """Return `$` and one character for each of a run of low characters.

    The last one also says whether a higher character follows, so that a text sorts before the longer texts that begin
    with it. A text grows by at most half, because two runs are never adjacent.
    """
    found = low.group()
    more = low.end() < len(low.string)
    return "$" + "".join([chr(37 + 2 * ord(c)) for c in found[:-1]]) + chr(37 + 2 * ord(found[-1]) + more)


def _part(value: str | int) -> str:
    """Return a part of a key such that the order of parts is that of the values, whatever follows after `#`."""
    if isinstance(value, str):
        found = _LOW.sub(_escaped, value)
        return found if len(found) <= PART_BYTES_MAX // 4 else _shortened(found)
    return f"{value:0{DIGITS}d}" if value >= 0 else f"-{value + 2**63:0{DIGITS}d}"


def _shortened(part: str) -> str:
    """Return the part, or its beginning and a hash if it is too long: a start key may have 255 characters of 4 bytes.

    Only among such parts the order may differ from that of the texts.
    """
    data = part.encode(errors="surrogatepass")
    if len(data) <= PART_BYTES_MAX:
        return part
    return f"{data[:PART_CUT].decode(errors='ignore')}$~{sha256(data).hexdigest()[:32]}"


class _Layout(NamedTuple):
    """Place of the rows of one kind."""

    table: str
    width: int  # columns of the partition key; 0: the partition of the store
    head: tuple[str, ...]  # first parts of the sort key
    mark: str = ""  # name of the kind after the key of an effect
    at: int = 0  # number of parts before it
    apart: str = ""  # before the second part of the partition key, so that no run has this partition


_ONCE: Final = _part(0)  # visit of rows that exist once per run or tenant
_OF_STORE: Final = {
    kind.name for kind in (SLOT, PAUSE, TENANT_BUDGET, MODEL_TEXT, TOPOLOGY, SUBSCRIPTION, WORKER, WRITER, META)
}
_SPECIAL: Final = {
    EVENT.name: _Layout(CHECKPOINTS, 2, ("checkpoint",)),
    EFFECT.name: _Layout(IDEMPOTENCY, 2, ()),
    MEMO.name: _Layout(IDEMPOTENCY, 2, (), "memo", 2),
    EVIDENCE.name: _Layout(IDEMPOTENCY, 2, (), "evidence", 2),
    TOKEN.name: _Layout(IDEMPOTENCY, 2, (_ONCE,), "token", 1),
    USAGE.name: _Layout(IDEMPOTENCY, 2, (_ONCE,), "usage", 1),
    UNPUBLISHED.name: _Layout(RUNS, 1, (UNPUBLISHED.name,)),
    REQUEST.name: _Layout(RUNS, 1, (REQUEST.name,)),
    **{kind.name: _Layout(RUNS, 2, (kind.name,), apart="#") for kind in GRAPH_KINDS},
}
_LAYOUTS: Final = {
    kind.name: _SPECIAL.get(kind.name) or _Layout(RUNS, 0 if kind.name in _OF_STORE else 2, (kind.name,))
    for kind in KINDS
}
RECEIPT: Final = "receipt"
_BY_HEAD: Final = {
    layout.head[0]: kind for kind in KINDS if len((layout := _LAYOUTS[kind.name]).head) and not layout.mark
}
_BY_MARK: Final = {_LAYOUTS[kind.name].mark: kind for kind in (MEMO, EVIDENCE, TOKEN, USAGE)}
assert RECEIPT not in _BY_HEAD and "body" not in _BY_HEAD

# An escaped key of 500 bytes is never shortened. The longest sort keys are those of late answers and of budgets.
assert KEY_BYTES_MAX * 3 // 2 + 1 <= PART_BYTES_MAX
assert (
    PART_BYTES_MAX + max(2 * (DIGITS + 1) + len("##evidence"), len("tenant_budget##") + NAME_CHARS_MAX) + _BODY_KEY
    <= 1024
)
assert 2 * NAME_CHARS_MAX + 1 <= 2048


def partition(tenant: str, run: str = "") -> str:
    """Return the partition key of a run's rows, or of the rows of a tenant that belong to no run."""
    return f"{_part(tenant)}#{_part(run)}"


_STORE_PARTITION: Final = partition(STORE)


def _sort_key(layout: _Layout, parts: Sequence[str | int]) -> str:
    found = [*layout.head, *map(_part, parts)]
    if layout.mark and len(parts) >= layout.at:
        found.insert(len(layout.head) + layout.at, layout.mark)
    return "#".join(found)


def place(kind: AnyKind, key: Key) -> ItemPlace:
    """Return where the row at a key is."""
    layout = _LAYOUTS[kind.name]
    width = layout.width
    return ItemPlace(layout.table, _partition_of(layout, key), _sort_key(layout, key[width:]))


def _partition_of(layout: _Layout, key: Key) -> str:
    width = layout.width
    if not width:
        return _STORE_PARTITION
    return f"{_part(key[0])}#{layout.apart}{_part(key[1]) if width > 1 else ''}"


def within(kind: AnyKind, prefix: Key, after: Key = ()) -> KeyRange | None:
    """Return the sort keys of the rows whose key begins with `prefix`, after the key `after`.

    The range may also hold body items and, in the table of effects, rows of other kinds (`kind_of`). Return None if
    these rows are in several partitions.
    """
    layout = _LAYOUTS[kind.name]
    width = layout.width
    if len(prefix) < width:
        return None
    parts = prefix[width:]
    begin = _sort_key(layout, parts)
    if len(after) > len(prefix):
        low = _sort_key(layout, after[width:]) + "$"  # `$` follows `#`, and begins no key that ends a part here
    elif not begin:
        low = "-"
    else:
        low = begin if len(prefix) == kind.key else begin + "#"
    return KeyRange(layout.table, _partition_of(layout, prefix), low, begin + "$" if begin else ":")


def kind_of(sk: str) -> AnyKind | None:
    """Return the kind of the row of an item, or None for a body item, a further receipt and the schema."""
    if sk[-_BODY_KEY:-2] == BODY:
        return None
    parts = sk.split("#", 3)
    kind = _BY_HEAD.get(parts[0])
    if kind is not None or not parts[0].lstrip("-").isdigit():
        return kind
    return EFFECT if len(parts) == 2 else _BY_MARK[parts[2]]


def receipt_place(writer: str, shard: int) -> ItemPlace:
    """Return where a receipt of a writer is. The first one is its row.

    The others have a partition of the writer, because one partition takes 1,000 write units a second.
    """
    if not shard:
        return place(WRITER, (STORE, writer))
    return ItemPlace(RUNS, partition(STORE, writer), f"{RECEIPT}#{shard:02d}")


def lock_place(tenant: str, run: str) -> ItemPlace:
    """Return where the recovery lock of a run is."""
    return ItemPlace(RECOVERY_LOCKS, partition(tenant, run), "")


# --- attributes --------------------------------------------------------------------------------
def text(value: str) -> Value:
    """Return a text as a value of an attribute."""
    return {"S": value}


def number(value: float) -> Value:
    """Return an integer as a value of an attribute."""
    return {"N": str(value)}


def _blob(value: bytes) -> Value:
    return {"B": value}


class _Columns(NamedTuple):
    """The columns of one kind as attributes."""

    encoders: tuple[tuple[str, Callable[[Any], Value]], ...]
    names: tuple[str, ...]
    nullable: frozenset[str]
    large: tuple[tuple[int, str], ...]  # texts and blobs that may move to body items
    blobs: frozenset[str]


def _columns(kind: AnyKind) -> _Columns:
    shape, hints = SHAPES[kind.name], list(get_type_hints(kind.row).values())
    names = tuple(SNAPSHOT if kind is EVENT and name == "snapshot" else name for name in kind.columns)
    blobs = {names[i] for i in shape.blobs}
    encoders = [
        (name, _blob if name in blobs else text if isinstance(hint, type) and issubclass(hint, str) else number)
        for name, hint in zip(names, hints, strict=True)
    ]
    large = [(i, name) for i, (name, make) in enumerate(encoders) if make is not number and i >= kind.key]
    nullable = {name for name, hint in zip(names, hints, strict=True) if hint in (int | None, bytes | None)}
    return _Columns(tuple(encoders), names, frozenset(nullable), tuple(large), frozenset(blobs))


_COLUMNS: Final = {kind.name: _columns(kind) for kind in KINDS}
ADDED: Final = frozenset({
    PK, SK, RECEIPT, "bodies", "ttl", "kept_until", "mapping", "at_once", "writer", "due_lane", "held_by", "list",
    "list_at", "queue_of", "ended_of", "spent_of", "asking_of", "asking_at", "lane_of", "tree_of", "shards", "settings",
    "step_name", "step_status", "completed_at", "flagged_of", "flagged_as",
})  # fmt: skip
"""Attributes that are no columns."""
assert not ADDED & {name for columns in _COLUMNS.values() for name in columns.names}
LATER: Final = {
    (EFFECT.name, "first_visit"): 0,
    (CALL_USAGE.name, "unpriced"): 0,
    (CALL_USAGE.name, "root"): "",
    (CALL_USAGE.name, "prompt"): "",
    (CALL_USAGE.name, "tools"): "",
    (CALL_USAGE.name, "ms"): 0,
    (CALL_USAGE.name, "outcome"): "",
    (EFFECT.name, "child"): "",
    (RUN.name, "forked_from"): "",
    (RUN.name, "root"): "",
    (RUN.name, "root_created_at"): 0,
    (RUN.name, "depth"): 0,
    (RUN.name, "descent"): "",
    (RUN.name, "causes"): "",
    (RUN.name, "flagged_at"): 0,
    (RUN.name, "flagged_until"): 0,
    (RUN.name, "attributes"): "",
    (SUBSCRIPTION.name, "forks"): 0,
}
"""Columns that the migrations of SQL stores have added, with their defaults. Earlier items lack them."""


def list_of(kind: AnyKind, tenant: str, key: str = "") -> str:
    """Return the name of a list in the index `listed`.

    `key`: of a subscription's cursors, of an effect's users, of the usage below a root, of the runs with an attribute.
    """
    if kind is CURSOR:
        return f"owing#{_part(tenant)}#{_part(key)}"
    by_key = kind in (USAGE, CALL_USAGE, ATTRIBUTE)
    return f"{kind.name}#{_part(tenant)}#{_part(key)}" if by_key else f"{kind.name}#{_part(tenant)}"


def tree_list_of(tenant: str, root: str) -> str:
    """Return the name of the list of the runs below a root."""
    return f"{_part(tenant)}#{_part(root)}"


def open_list_of(kind: AnyKind, tenant: str) -> str:
    """Return the name of the list, in the index `asking`, of a tenant's rows that wait for a person."""
    return f"{kind.name}#{_part(tenant)}"


def decided_list_of(tenant: str, person: str) -> str:
    """Return the name of the list, in the index `asking`, of the approvals that a person has decided."""
    return f"decided#{_part(tenant)}#{_part(person)}"


def unknown_list_of(tenant: str) -> str:
    """Return the name of the list, in the index `asking`, of the effects that a person gave up."""
    return f"unknown#{_part(tenant)}"


def lane_list_of(tenant: str, lane: str) -> str:
    """Return the name of the list, in the index `lane`, of a tenant's unfinished runs in a lane."""
    return f"{_part(tenant)}#{lane}"


def lane_of(lane: str, mapping: int) -> str:
    """Return the name of a lane in the index `due`."""
    return f"{lane}#{mapping}"


def queue_of(tenant: str, *, child: bool) -> str:
    """Return the name of a list in the index `queue`. Children have their own one, because their order is another."""
    return f"children#{tenant}" if child else tenant


def spending_of(tenant: str, day: int) -> str:
    """Return the name of a tenant's business day in the index `spent`."""
    return f"{_part(tenant)}#{day}"


def _listed(name: str, at: int) -> Item:
    return {"list": text(name), "list_at": number(at)}


def _open(name: str, at: int) -> Item:
    return {"asking_of": text(name), "asking_at": number(at)}


def _of_run(run: Run, mapping: int, stamp: Stamp) -> Item:
    found = {
        "mapping": number(mapping), "writer": text(stamp.writer), "batch": number(stamp.batch),
        **_listed(list_of(RUN, run.tenant), run.created_at),
    }  # fmt: skip
    if run.due_at is not None:
        found["due_lane"] = text(lane_of(run.lane, mapping))
    if run.owner not in NO_HOLDER:
        found["held_by"] = text(run.owner)
    if run.queue:
        found["queue_of"] = text(queue_of(run.queue, child=bool(run.root)))
    if run.ended_at:
        found["ended_of"] = text(run.tenant)
    else:
        found["lane_of"] = text(lane_list_of(run.tenant, run.lane))
    if run.root:
        found["tree_of"] = text(tree_list_of(run.tenant, run.root))
    if run.flagged_at:
        of_tenant = open_list_of(RUN, run.tenant)
        found |= _open(of_tenant, run.created_at)
        found |= {"flagged_of": text(of_tenant), "flagged_as": text(flagged_as(run))}
    return found


def flagged_as(run: Run) -> str:
    """Return the key of a flagged run in the index `flagged`, from which runs are counted by cause."""
    return f"{run.causes}#{run.flagged_at}#{run.flagged_until}"


def flags_in(key: str) -> tuple[str, int, int]:
    """Return the columns `causes`, `flagged_at` and `flagged_until` from a key of the index `flagged`."""
    causes, since, until = key.rsplit("#", 2)
    return causes, int(since), int(until)


def _of_approval(row: Any) -> Item:
    found = _listed(list_of(APPROVAL, row.tenant), row.asked_at)
    if IS_OPEN[APPROVAL.name](row):
        return found | _open(open_list_of(APPROVAL, row.tenant), row.within_until)
    return found | _open(decided_list_of(row.tenant, row.decided_by), row.asked_at) if row.decided_by else found


def _of_ledger(kind: AnyKind) -> Callable[[Any], Item]:
    """Return the function for effects and deliveries, which are listed by their first instant."""

    def extra(row: Any) -> Item:
        found = _listed(list_of(kind, row.tenant), row.first_at)
        if IS_OPEN[kind.name](row):
            found |= _open(open_list_of(kind, row.tenant), row.first_at)
        elif kind is EFFECT and is_unknown(row):
            found |= _open(unknown_list_of(row.tenant), row.first_at)
        return found

    return extra


def _of_event(event: Any) -> Item:
    """Return what the event says about the node that it completes, if it carries a snapshot."""
    if event.snapshot is None:
        return {}
    name, status = event.node, event.kind.rpartition(".")[2]
    if event.type == EventType.CHECKPOINT:
        name, status = completed_node(event), COMPLETED
    return {
        "step_name": text(name), "step_status": text(status), "completed_at": number(event.at),
        "version": number(event.seq),
    }  # fmt: skip


_EXTRAS: Final[dict[str, Callable[[Any], Item]]] = {
    EVENT.name: _of_event,
    EFFECT.name: _of_ledger(EFFECT),
    APPROVAL.name: _of_approval,
    DELIVERY.name: _of_ledger(DELIVERY),
    MESSAGE.name: lambda row: _open(open_list_of(MESSAGE, row.tenant), row.at) if is_act(row) else {},
    REQUEST.name: lambda row: _listed(list_of(REQUEST, row.tenant), row.at),
    ATTRIBUTE.name: lambda row: _listed(list_of(ATTRIBUTE, row.tenant, f"{row.name}={row.value}"), row.at),
    FLAGGING.name: lambda row: _listed(list_of(FLAGGING, row.tenant), row.at),
    USAGE.name: lambda row: _listed(list_of(USAGE, row.tenant, row.key), row.at),
    CURSOR.name: lambda row: (
        {} if row.due_at is None else _listed(list_of(CURSOR, row.tenant, row.subscription), row.due_at)
    ),
    GRAPH_THREAD.name: lambda row: _listed(list_of(GRAPH_THREAD, row.tenant), row.changed_at),
    CALL_USAGE.name: lambda row: {
        "spent_of": text(spending_of(row.tenant, row.day)),
        **(_listed(list_of(CALL_USAGE, row.tenant, row.root), row.at) if row.root else {}),
    },
}


def encode(kind: AnyKind, row: Any, stamp: Stamp, *, mapping: int = 0, ttl: int = 0) -> list[Item]:
    """Return the item of a row, and after it its body items.

    `mapping`: of a run, the version by which its due_at was set. `ttl`: seconds since 1970; 0 = none.
    """
    columns = _COLUMNS[kind.name]
    where = place(kind, row[: kind.key])
    item = {name: make(value) for (name, make), value in zip(columns.encoders, row, strict=True) if value is not None}
    item[PK], item[SK], item[RECEIPT] = text(where.pk), text(where.sk), text(stamp.text)
    if kind is RUN:
        assert isinstance(row, Run)
        item |= _of_run(row, mapping, stamp)
    elif (extra := _EXTRAS.get(kind.name)) is not None:
        item |= extra(row)
    if ttl:
        item["ttl"] = number(ttl)
    return _with_bodies(kind, columns, row, item, stamp, ttl)


def _with_bodies(kind: AnyKind, columns: _Columns, row: Any, item: Item, stamp: Stamp, ttl: int) -> list[Item]:
    """Return the item and, if its texts and blobs exceed ITEM_BYTES, the items of the largest of them."""
    shape = SHAPES[kind.name]
    size = 4 * len("".join(shape.texts(row))) + sum([len(row[i] or b"") for i in shape.blobs])
    if size <= ITEM_BYTES:  # a character has at most four bytes
        return [item]
    data = {name: row[i] if name in columns.blobs else row[i].encode() for i, name in columns.large if row[i]}
    left = sum(map(len, data.values())) + sum([len(part.encode()) for part in row[: kind.key] if isinstance(part, str)])
    moved: list[str] = []
    for name in sorted(data, key=lambda name: -len(data[name])):
        if left <= ITEM_BYTES:
            break
        left -= len(data[name])
        moved.append(name)
        del item[name]
    if not moved:
        return [item]
    body = b"".join([data[name] for name in moved])
    slices = [body[at : at + ITEM_BYTES] for at in range(0, len(body), ITEM_BYTES)]
    sizes = ",".join([f"{name}:{len(data[name])}" for name in moved])
    item["bodies"] = text(f"{len(slices)} {sizes} {stamp.text}")
    shared = {PK: item[PK], RECEIPT: item[RECEIPT], **({"ttl": number(ttl)} if ttl else {})}
    begin = item[SK]["S"] + BODY
    return [item, *({**shared, SK: text(f"{begin}{i:02d}"), "data": {"B": part}} for i, part in enumerate(slices))]


def body_places(table: str, item: Mapping[str, Value]) -> list[ItemPlace]:
    """Return where the body items of a row's item are. [] if that cannot be read, which `decode` reports."""
    try:
        pk, begin, count = item[PK]["S"], item[SK]["S"] + BODY, _layout(item)[0]
    except (KeyError, ValueError):
        return []
    return [ItemPlace(table, pk, f"{begin}{i:02d}") for i in range(count)]


def places_of_size(kind: AnyKind, key: Key, size: int) -> list[ItemPlace]:
    """Return where the item of a row is, and its body items can be. `size`: bytes of its texts and blobs."""
    where = place(kind, key)
    return [where, *(where._replace(sk=f"{where.sk}{BODY}{i:02d}") for i in range(further_items(size)))]


def _layout(item: Mapping[str, Value]) -> tuple[int, list[tuple[str, int]], str]:
    """Return the number of an item's body items, the columns in them with their sizes, and the stamp of their write.

    Raises KeyError and ValueError for an attribute that no store has written.
    """
    if "bodies" not in item:
        return 0, [], ""
    count, sizes, stamp = item["bodies"]["S"].split(" ", 2)
    if not 0 <= int(count) < BODIES_MAX:
        raise ValueError(f"it has {count} parts"[:80])
    named = [each.partition(":") for each in sizes.split(",") if each]
    return int(count), [(name, int(size)) for name, _, size in named], stamp


def decode(kind: AnyKind, item: Mapping[str, Value], bodies: Iterable[Mapping[str, Value]] = ()) -> Any:
    """Return the row of an item and its body items. Raises Torn, and Corrupt as `sql.rows_of`."""
    return DECODE[kind.name](stored_values(kind, item, bodies))


def stored_values(kind: AnyKind, item: Mapping[str, Value], bodies: Iterable[Mapping[str, Value]] = ()) -> list[Any]:
    """Return the values of a row's columns, also those of a wrong type. A column that is missing is None.

    Raises Torn, and Corrupt if the body items cannot be joined.
    """
    columns = _COLUMNS[kind.name]
    if "bodies" in item:
        item = whole(kind, item, bodies)
    values: list[Any] = []
    for name in columns.names:
        value = item.get(name)
        if value is None:
            values.append(LATER.get((kind.name, name)))
        elif (digits := value.get("N")) is not None:
            values.append(number_of(digits))
        elif name in columns.blobs:
            values.append(value.get("B", value.get("S", value)))
        else:
            values.append(value.get("S", value.get("B", value)))
    return values


def number_of(digits: str) -> int | float:
    """Return a stored number. One with a fraction was written by another program."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def whole(kind: AnyKind, item: Mapping[str, Value], bodies: Iterable[Mapping[str, Value]]) -> Item:
    """Return a row's item with the columns that are in its body items. Raises Torn and Corrupt."""
    blobs = _COLUMNS[kind.name].blobs
    begin = item[SK]["S"] + BODY
    try:
        count, sizes, stamp = _layout(item)
        of_write = {each[SK]["S"]: each["data"]["B"] for each in bodies if each.get(RECEIPT) == text(stamp)}
    except (KeyError, ValueError) as error:
        raise corrupt(kind, item, f"its parts cannot be joined: {error!r}") from error
    try:
        body = b"".join([of_write[f"{begin}{i:02d}"] for i in range(count)])
    except KeyError as error:
        raise Torn(f"{item[PK]['S']} {error}") from None
    found = {name: value for name, value in item.items() if name != "bodies"}
    at = 0
    for name, size in sizes:
        data = body[at : at + size]
        found[name] = {"B": data} if name in blobs else _text_of(data)
        at += size
    return found


def _text_of(data: bytes) -> Value:
    """Return the value of a text in body items; its bytes if they are no text, which `decode` reports."""
    try:
        return text(data.decode())
    except UnicodeDecodeError:
        return {"B": data}


def corrupt(kind: AnyKind, item: Mapping[str, Value], why: str) -> Corrupt:
    """Return the error that names the row of an item by its key columns."""
    key: list[Any] = []
    for name in kind.columns[: kind.key]:
        value = item.get(name, {})
        key.append(number_of(value["N"]) if "N" in value else value.get("S", ""))
    error = Corrupt(f"{kind.name} {'/'.join(map(str, key))}: {why}")
    error.row = (kind.name, tuple(key))
    return error


def of_ended_run(item: Mapping[str, Value]) -> Run:
    """Return the row of an ended run, without the texts in its body items, which a purge may have deleted.

    Raises Corrupt.
    """
    try:
        empty = {name: text("") for name, _ in _layout(item)[1]}
    except (KeyError, ValueError) as error:
        raise corrupt(RUN, item, f"its parts cannot be read: {error!r}") from error
    run: Run = decode(RUN, {name: value for name, value in item.items() if name != "bodies"} | empty)
    return run


def revision(item: Mapping[str, Value], bodies: Iterable[Mapping[str, Value]] = ()) -> Revision:
    """Return the run of an item with the mapping by which it is armed. Raises as `decode`."""
    run = decode(RUN, item, bodies)
    try:
        return Revision(run, int(item["mapping"]["N"]), "at_once" in item)
    except (KeyError, ValueError) as error:
        raise corrupt(RUN, item, f"the version of its clock mapping cannot be read: {error!r}") from error


def has_expired(item: Mapping[str, Value], real: int) -> bool:
    """Return True if the item counts as absent. DynamoDB may delete it, unless it is a run's own.

    That one has `kept_until` instead of `ttl`, so that a purge finds what is left of the run.
    """
    until = item.get("ttl") or item.get("kept_until")
    return until is not None and number_of(until.get("N", "inf")) * 1000 <= real
