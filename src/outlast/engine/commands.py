"""What people and programs outside a holder do to a run: start, signal, cancel, decide."""

from typing import Any, NamedTuple

from outlast.core import people
from outlast.core.budget import SECOND
from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Expect
from outlast.core.keys import check_name
from outlast.core.limits import NOTE_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.rows import APPROVAL, RUN, TOKEN, Approval, Key, Kind, Run, Token, version_of
from outlast.core.verbs import start as start_verb
from outlast.engine.admission import limits_of
from outlast.engine.snapshots import first_snapshot
from outlast.errors import Conflict, Ended, InvalidInput, LimitExceeded, NotFound, Stale
from outlast.flow.workflow import Workflow
from outlast.store.port import Store
from outlast.telemetry.traces import Traces

RACES_MAX = 50  # a command that lost so many races in a row says so


class StartedRun(NamedTuple):
    """The run, and whether this call created it (False: it had been started under the same key)."""

    run: str
    created: bool


async def start(
    store: Store,
    workflow: Workflow[Any],
    given: bytes | str | dict[str, Any],
    *,
    tenant: str,
    actor: str,
    run: str,
    key: str = "",
    correlation_id: str = "",
    trace_id: str = "",
) -> StartedRun:
    """Start a run, durably, before this returns. Raises InvalidInput with every problem at once, Conflict (RUN-4)."""
    check_name("tenant", tenant)
    check_name("run", run)
    workflow.activities  # noqa: B018 - checks the definition, once
    state = workflow.state_codec.canonical(workflow.first_state(given))
    stamp = digest(workflow.name, state)
    now = await store.now()
    token = Token(tenant, "", _start_key(workflow, key or run), stamp, run, now.business)
    snapshot, values = first_snapshot(tenant, run, state, now.business)
    node = workflow.start
    traces = Traces.wanted()
    begun = traces.start(workflow=workflow.name, tenant=tenant, run=run, trace_id=trace_id) if traces else None
    commit = start_verb(
        tenant=tenant,
        run=run,
        workflow=workflow.name,
        lane=workflow.lane,
        node=node.name,
        status_label=node.status or "",
        state=snapshot,
        now=now,
        actor=actor,
        ceiling_ms=int(max(workflow.ceiling, node.ceiling or workflow.ceiling).total_seconds() * SECOND),
        limited=bool(await limits_of(store, tenant)),
        token=token,
        correlation_id=correlation_id,
        trace_id=begun.trace_id if begun else trace_id,
    )
    try:
        await store.commit(commit._replace(writes=(*commit.writes, *values)))
    except Stale:
        return await _started_before(store, token, workflow)
    if begun:
        begun.landed()
    return StartedRun(run, True)


def _start_key(workflow: Workflow[Any], key: str) -> str:
    return f"start/{workflow.name}/{key}"


async def _started_before(store: Store, token: Token, workflow: Workflow[Any]) -> StartedRun:
    before = await store.load(TOKEN, (token.tenant, "", token.key))
    if not isinstance(before, Token):
        raise Conflict(
            f"run {token.target} exists already", "another workflow or key started it", "choose another run id"
        )
    if before.digest != token.digest:
        raise Conflict(
            f"{workflow.name} was started before under this key with another input: {before.target}",
            "the same key means the same run, so the input must be the same",
            f"look at it with: outlast runs show {before.target}; or use another key",
        )
    return StartedRun(before.target, False)


async def find_run(store: Store, tenant: str, run: str) -> Run:
    """The run row. Raises NotFound."""
    row = await store.load(RUN, (tenant, run))
    if not isinstance(row, Run):
        raise no_run(tenant, run)
    return row


def no_run(tenant: str, run: str) -> NotFound:
    """There is none of this id."""
    return NotFound(f"no run {run}", f"tenant {tenant} has no run of this id", "list them with: outlast runs ls")


def over(run: str) -> Conflict:
    """The run has ended."""
    return Conflict(
        f"run {run} has ended",
        "a run that has ended takes no message and makes no move",
        f"look at it with: outlast runs show {run}",
        refusal="ended",
    )


def busy(run: str) -> Conflict:
    """A command lost every race."""
    return Conflict(f"run {run} moved too often meanwhile", "other writers were faster each time", "try again")


def moved(kind: Kind, key: Key, version: int) -> Conflict:
    """What somebody acts on has changed since he saw it."""
    what = f"{kind.name} {key[-1]}"
    return Conflict(
        f"{what} has changed since you saw it", f"it is at version {version} now", "look again", refusal="moved"
    )


async def check_seen(store: Store, seen: Expect | None) -> None:
    """Raise Conflict (`moved`) where a row is no longer at the version that somebody has seen; None: nobody says."""
    if seen is None:
        return
    row = await store.load(seen.kind, seen.key)
    if row is not None and (version := version_of(seen.kind, row)) != seen.version:
        raise moved(seen.kind, seen.key, version)


def as_seen(commit: Commit, seen: Expect | None) -> Commit:
    """It lands only while that row is as somebody has seen it: judged by the store, in the act's own transaction."""
    return commit if seen is None else commit._replace(expects=(*commit.expects, seen))


async def signal(
    store: Store,
    *,
    tenant: str,
    run: str,
    name: str,
    payload: dict[str, Any],
    actor: str,
    signal_id: str = "",
    seen: Expect | None = None,
) -> bool:
    """Leave a signal; False when this `signal_id` was left before. Raises NotFound, Conflict (ended; moved, where the
    run is no longer as it was `seen`), NotStorable."""
    check_name("signal", name)
    await check_seen(store, seen)
    data = canonical(payload)
    if len(data) > NOTE_BYTES_MAX:
        raise LimitExceeded(
            f"signal {name} is too large",
            f"it takes {len(data):,} bytes, the limit is {NOTE_BYTES_MAX:,}",
            "keep large values elsewhere (file, object store) and send their address",
        )
    now = await store.now()
    commit = people.append_message(
        tenant=tenant,
        run=run,
        kind="signal",
        name=name,
        actor=actor,
        now=now,
        payload=data,
        signal_id=signal_id,
    )
    try:
        await store.commit(as_seen(commit, seen))
    except Ended:
        raise over(run) from None
    except Stale as stale:
        if stale.reason == "missing" or seen is not None:
            await find_run(store, tenant, run)
        if not signal_id or await store.load(TOKEN, (tenant, run, f"signal/{signal_id}")) is None:
            await check_seen(store, seen)
        return False
    return True


async def cancel(store: Store, *, tenant: str, run: str, actor: str, reason: str, seen: Expect | None = None) -> None:
    """Ask that the run end. From here on no approval of it can be decided. Raises NotFound, Conflict (ended, moved)."""
    if not reason.strip():
        raise InvalidInput("a cancel needs a reason", "people will read it in the run's history", "say why")
    check_reason(reason)
    for _ in range(RACES_MAX):
        await check_seen(store, seen)
        row = await find_run(store, tenant, run)
        asked = await approvals_of(store, tenant, run)
        try:
            commit = people.cancel(row, asked, actor=actor, reason=reason, now=await store.now())
            await store.commit(as_seen(commit, seen))
            break
        except Ended:
            raise over(run) from None
        except Stale:
            continue
    else:
        raise busy(run)
    await withdraw_late(store, tenant, run)


def check_reason(reason: str) -> None:
    """What a person says must be storable. Raises LimitExceeded, InvalidInput."""
    if len(reason) > TEXT_CHARS_MAX:
        raise LimitExceeded("the reason is too long", f"at most {TEXT_CHARS_MAX:,} characters", "say it shorter")
    if not reason.isascii():
        try:
            reason.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("the reason is not text that can be stored", str(error), "decode it properly") from None


async def withdraw_late(store: Store, tenant: str, run: str) -> None:
    """Approvals asked for between our reading and our cancel: nobody is told "accepted" after this returns (S-20)."""
    for _ in range(RACES_MAX):
        now = await store.now()
        puts = [put for a in await approvals_of(store, tenant, run) if (put := people.withdraw(a, now)) is not None]
        if not puts:
            return
        try:
            await store.commit(Commit(tuple(puts), label=f"{run} withdraw"))
        except Stale:
            continue


async def approvals_of(store: Store, tenant: str, run: str) -> list[Approval]:
    """Every approval of a run."""
    return [row for row in await store.rows(APPROVAL, (tenant, run)) if isinstance(row, Approval)]


async def find_approval(store: Store, tenant: str, approval: str) -> Approval:
    """The approval row. Raises NotFound."""
    page = await store.page(APPROVAL, tenant, {"id": approval}, limit=1)
    for row in page.rows:
        if isinstance(row, Approval):
            return row
    raise NotFound(
        f"no approval {approval}", f"tenant {tenant} has none of this id", "list them with: outlast approvals ls"
    )
