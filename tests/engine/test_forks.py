"""Forks of ended runs: the past is copied, and each call after the point is answered or permitted as its mode says."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, Refused, Workflow, activity, lookup
from outlast.core.commit import Commit, Put
from outlast.core.events import EventType
from outlast.core.forks import as_used, ledger_of, points_of
from outlast.core.machine import EffectStatus, SubscriptionStatus
from outlast.core.rows.columns import TYPES
from outlast.core.rows.effect_rows import EFFECT, Usage
from outlast.core.rows.outbox_rows import Subscription
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.core.webhooks.approval_notices import CARRIED_BY
from outlast.core.webhooks.deliveries import wants_event
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest, StartedFork
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.store.port import maintenance
from outlast.testing.virtual_runtime import App, AppRun
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.fsck_checks import copies_match
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10")


class Order(BaseModel):
    """State of an order."""

    item: str
    price: int = 0
    paid: str = ""
    sent: str = ""
    seen: list[str] = []


@dataclass
class Outside:
    """The record of the receivers: requests that change something, and reads."""

    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)


OUTSIDE = Outside()


@pytest.fixture(autouse=True)
def outside() -> Outside:
    """Return an empty record."""
    OUTSIDE.writes, OUTSIDE.reads, OUTSIDE.refuses, OUTSIDE.keys = [], [], set(), []
    return OUTSIDE


def write(what: str) -> str:
    """Count a request, or refuse it."""
    OUTSIDE.writes.append(what)
    if what in OUTSIDE.refuses:
        raise Refused("no", f"{what} is refused")
    return f"{what} no. {len(OUTSIDE.writes)}"


@lookup(durable=True)
async def quote(item: str) -> int:
    """Read a price."""
    OUTSIDE.reads.append(item)
    return 100 + len(OUTSIDE.reads)


@activity(name="pay_for", key="pay/{item}/{price}", no_undo="money is kept")
async def pay(item: str, price: int) -> str:
    """Pay for an item."""
    return write(f"pay {item} {price}")


@activity(key="reserve/{item}")
async def reserve(item: str) -> str:
    """Reserve an item."""
    return write(f"reserve {item}")


@reserve.undo
async def release(response: str, item: str) -> None:
    """Give an item back."""
    write(f"release {item}")


@activity(key="announce/{item}", once_per="run", no_undo="it was heard")
async def announce(item: str) -> str:
    """Announce an item, once per run."""
    return write(f"announce {item}")


@activity(key="ship/{item}", once_per="run", no_undo="it is gone")
async def ship(item: str) -> str:
    """Ship an item, once per run."""
    return write(f"ship {item}")


@activity(key="index/{item}", once_per="tenant", no_undo="an index is harmless")
async def index(item: str) -> str:
    """Index an item, once per tenant."""
    return write(f"index {item}")


orders = Workflow("orders", state=Order)


@orders.node(start=True)
async def begin(ctx: Context[Order]) -> Literal["buy"]:
    """Read the price and reserve."""
    ctx.state.price = await ctx.do(quote, ctx.state.item)
    await ctx.do(reserve, ctx.state.item)
    ctx.state.seen.append(await ctx.do(announce, ctx.state.item))
    return "buy"


@orders.node
async def buy(ctx: Context[Order]) -> Literal["deliver"]:
    """Read the price again, and pay."""
    now = await ctx.do(quote, ctx.state.item)
    with suppress(Refused):
        ctx.state.paid = await ctx.do(pay, ctx.state.item, now)
    return "deliver"


@orders.node
async def deliver(ctx: Context[Order]) -> None:
    """Ship, announce again, and index."""
    with suppress(Refused):
        ctx.state.sent = await ctx.do(ship, ctx.state.item)
    ctx.state.seen.append(await ctx.do(announce, ctx.state.item))
    ctx.state.seen.append(await ctx.do(index, ctx.state.item))


class Loop(BaseModel):
    """State of an order that pays in rounds."""

    item: str
    rounds: int = 1
    done: int = 0
    note: str = "plain"
    fails: bool = False


loops = Workflow("loops", state=Loop)


@activity(key="label/{item}", once_per="run", no_undo="it sticks")
async def label(item: str, note: str) -> str:
    """Label an item, once per run."""
    return write(f"label {item}")


@loops.node(start=True)
async def prepare(ctx: Context[Loop]) -> Literal["again"]:
    """Reserve."""
    await ctx.do(reserve, ctx.state.item)
    return "again"


@loops.node(max_visits=9)
async def again(ctx: Context[Loop]) -> Literal["again"] | None:
    """Pay, in each round the same."""
    await ctx.do(label, ctx.state.item, ctx.state.note)
    await ctx.do(pay, ctx.state.item, 1)
    ctx.state.done += 1
    if ctx.state.fails:
        raise Fail("it was not to be")
    return "again" if ctx.state.done < ctx.state.rounds else None


class Word(BaseModel):
    """A signal."""

    text: str


hears = Workflow("hears", state=Order)


@hears.node(start=True)
async def first(ctx: Context[Order]) -> Literal["second"]:
    """Hear one word."""
    ctx.state.seen.append((await ctx.receive("word", Word)).text)
    return "second"


@hears.node
async def second(ctx: Context[Order]) -> None:
    """Hear another word."""
    ctx.state.seen.append((await ctx.receive("word", Word)).text)


remembers = Workflow("remembers", state=Order)


async def remembered(ctx: Context[Order]) -> None:
    """Note what the run knows of its calls, as an agent does before it proposes one."""
    item = ctx.state.item
    for plan in (reserve.plan(item), announce.plan(item), index.plan(item), quote.plan(item)):
        found = await ctx.recorded(plan)
        ctx.state.seen += [f"{ctx.visit}: {plan.key} {known.visit} {known.made_in} {known.done}" for known in found]


@remembers.node(start=True)
async def once(ctx: Context[Order]) -> Literal["twice"]:
    """Make each call."""
    await remembered(ctx)
    item = ctx.state.item
    for plan in (reserve.plan(item), announce.plan(item), index.plan(item), quote.plan(item)):
        await ctx.do(plan)
    return "twice"


@remembers.node
async def twice(ctx: Context[Order]) -> Literal["thrice"]:
    """Make two calls again."""
    await remembered(ctx)
    await ctx.do(announce, ctx.state.item)
    await ctx.do(index, ctx.state.item)
    return "thrice"


@remembers.node
async def thrice(ctx: Context[Order]) -> None:
    """Make no call."""
    await remembered(ctx)


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, outlast_app: Callable[..., App]) -> App:
    """Return an app that serves the orders."""
    return outlast_app(orders, loops, hears, remembers, store=request.param)


def ended(app: App, item: str = "pen") -> str:
    """Return the id of an order that has ended."""
    run = app.start(orders, {"item": item})
    assert run.status == "completed", run.now
    return run.id


def fork(app: App, of: str, point: str, **given: Any) -> StartedFork:
    """Fork an order and let the fork go as far as it can."""
    asked = ForkRequest(of, point, **{"approvers": "lead", **given})
    tenant = app.runtime.operations.tenant
    run = f"fork-{point}-{asked.effects}"
    started = app.do(fork_start.fork(app.store, orders, asked, tenant=tenant, actor="ana", run=run))
    app.settle()
    return started


def run_of(app: App, run: str) -> Any:
    """Return a run as clients see it."""
    return app.do(app.runtime.operations.run(run))


@pytest.mark.parametrize("point", ["begin", "buy", "deliver"])
@pytest.mark.parametrize("effects", ["ask", "recorded"])
def test_outside_record_does_not_grow(app: App, outside: Outside, point: str, effects: str) -> None:
    of = ended(app)
    before = [*outside.writes]
    started = fork(app, of, point, effects=effects)
    assert outside.writes == before
    found = run_of(app, started.run)
    waits = [each.kind for each in found.waiting_for]
    assert found.status == "completed" if effects == "recorded" or point == "deliver" else waits == ["approval"]


def decide(app: App, run: str, *, approve: bool = True) -> None:
    """Decide the pending approval of a run."""
    of = AppRun(app, orders, run)
    if approve:
        of.approve()
    else:
        of.reject()


def of_kind(outside: Outside, word: str) -> int:
    """Return the number of requests of a kind."""
    return sum(each.split()[0] == word for each in outside.writes)


def test_an_approved_write_is_made_once_and_the_past_is_not(app: App, outside: Outside) -> None:
    of = ended(app)
    started = fork(app, of, "begin", effects="ask")
    for _ in range(3):  # reserve, then announce, which the ancestor has done, then pay
        if run_of(app, started.run).status == "completed":
            break
        decide(app, started.run)
    assert run_of(app, started.run).status == "completed"
    assert [of_kind(outside, word) for word in ("reserve", "announce", "pay", "ship", "index")] == [2, 1, 2, 1, 1]


def test_a_rejected_write_is_not_made(app: App, outside: Outside) -> None:
    of = ended(app)
    before = [*outside.writes]
    started = fork(app, of, "buy", effects="ask")
    decide(app, started.run, approve=False)
    assert run_of(app, started.run).status == "completed"
    assert outside.writes == before


def test_the_summary_for_approvers_names_the_ancestor(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "buy", effects="ask")
    (approval,) = app.rows(started.run).approvals
    assert approval.summary.startswith(f"fork of {of}: pay_for ")


def test_a_recorded_lookup_answers_and_a_live_one_is_made(app: App, outside: Outside) -> None:
    of = ended(app)
    assert len(outside.reads) == 2
    fork(app, of, "begin", effects="recorded")
    assert len(outside.reads) == 2
    fork(app, of, "begin", effects="live", lookups="live")
    assert len(outside.reads) == 4


def test_the_history_says_where_each_answer_comes_from(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "deliver", effects="recorded")
    history = app.do(app.runtime.operations.history(started.run))
    assert [text for event in history if "answered from" in (text := event.data().get("text", ""))] == [
        f"ship ship/pen: answered from {of} visit 3",
        f"announce announce/pen: answered from {of} visit 1",  # once per run
    ]


def test_a_recorded_answer_serves_one_call(app: App, outside: Outside) -> None:
    """A state that makes the fork pay the same twice: the second call waits for a person."""
    of = app.start(loops, {"item": "pen", "rounds": 1}).id
    before = [*outside.writes]
    asked = ForkRequest(of, "again", {"item": "pen", "rounds": 2}, effects="recorded", approvers="lead")
    tenant = app.runtime.operations.tenant
    app.do(fork_start.fork(app.store, loops, asked, tenant=tenant, actor="ana", run="two"))
    app.settle()
    assert outside.writes == before
    assert [wait.kind for wait in run_of(app, "two").waiting_for] == ["approval"]
    assert run_of(app, "two").visit == 3, "the first round was answered"


def test_a_live_fork_makes_what_the_policy_allows_and_no_call_once_per_run(app: App, outside: Outside) -> None:
    of = ended(app)
    started = fork(app, of, "begin", effects="live")
    assert run_of(app, started.run).status == "completed"
    assert [of_kind(outside, word) for word in ("reserve", "announce", "pay", "ship", "index")] == [2, 1, 2, 1, 1]


def test_two_forks_make_a_call_once_per_run_once(app: App, outside: Outside) -> None:
    outside.refuses.add("ship pen")
    of = ended(app)
    outside.refuses.clear()
    tenant = app.runtime.operations.tenant
    for name in ("one", "two"):
        asked = ForkRequest(of, "deliver", effects="live")
        app.do(fork_start.fork(app.store, orders, asked, tenant=tenant, actor="ana", run=name))
    app.settle()
    assert [run_of(app, name).status for name in ("one", "two")] == ["completed", "completed"]
    assert outside.writes.count("ship pen") == 2, "the refused one of the ancestor, and one of its forks"
    third = fork(app, "two", "deliver", effects="live")
    assert run_of(app, third.run).status == "completed"
    assert outside.writes.count("ship pen") == 2, "a fork of a fork is of the same lineage"


def test_a_call_once_per_run_with_other_arguments_is_a_conflict(app: App, outside: Outside) -> None:
    of = app.start(loops, {"item": "pen", "rounds": 1}).id
    before = [*outside.writes]
    asked = ForkRequest(of, "again", {"item": "pen", "rounds": 1, "note": "other"}, effects="live")
    tenant = app.runtime.operations.tenant
    app.do(fork_start.fork(app.store, loops, asked, tenant=tenant, actor="ana", run="other"))
    app.settle()
    assert [each.reason for each in run_of(app, "other").attention] == ["contradiction"]
    assert [each for each in outside.writes if each not in before] == []


def test_effects_that_were_undone_need_to_be_accepted(app: App, outside: Outside) -> None:
    failing = app.start(loops, {"item": "pen", "rounds": 1, "fails": True})
    assert failing.status == "failed"
    assert outside.writes[-1] == "release pen"
    tenant, known = app.runtime.operations.tenant, [*outside.writes]
    asked = ForkRequest(failing.id, "again", effects="recorded", approvers="lead")
    with pytest.raises(Conflict) as refused:
        app.do(fork_start.fork(app.store, loops, asked, tenant=tenant, actor="ana", run="undone"))
    assert refused.value.refusal == "undone_effects" and "reserve reserve/pen: undone" in str(refused.value)
    accepted = asked._replace(accept_undone=True)
    started = app.do(fork_start.fork(app.store, loops, accepted, tenant=tenant, actor="ana", run="undone"))
    app.settle()
    assert started.point.to_accept == ("reserve reserve/pen: undone",)
    assert outside.writes == known


def test_a_cancelled_fork_undoes_its_own_effects_only(app: App, outside: Outside) -> None:
    of = ended(app)
    fork(app, of, "buy", effects="ask")
    AppRun(app, orders, "fork-buy-ask").cancel()
    assert run_of(app, "fork-buy-ask").status == "cancelled"
    assert of_kind(outside, "release") == 0, "the past is not undone"
    fork(app, of, "begin", effects="ask")
    decide(app, "fork-begin-ask")
    AppRun(app, orders, "fork-begin-ask").cancel()
    assert of_kind(outside, "release") == 1, "the reservation that the fork made"


def test_a_run_in_flight_is_refused(app: App) -> None:
    of = ended(app)
    fork(app, of, "buy", effects="ask")
    with pytest.raises(Conflict) as refused:
        fork(app, "fork-buy-ask", "buy")
    assert refused.value.refusal == "not_ended"


def test_a_purged_ledger_is_refused_and_a_started_fork_needs_none(app: App, outside: Outside) -> None:
    of = ended(app)
    started = fork(app, of, "buy", effects="recorded")
    assert run_of(app, started.run).status == "completed"
    fork(app, of, "begin", effects="ask")
    app.clock.skip("1h")
    assert app.do(maintenance(app.store).purge_ledgers(app.do(app.store.now()).business, 10))
    with pytest.raises(Conflict) as refused:
        fork(app, of, "deliver")
    assert refused.value.refusal == "purged"
    before = [*outside.writes]
    decide(app, "fork-begin-ask")
    assert len(outside.writes) == len(before) + 1 and run_of(app, "fork-begin-ask").waiting_for[0].kind == "approval"


@pytest.mark.parametrize(
    ("state", "changed"),
    [
        ({"item": "ink"}, ("item", "paid", "price", "seen")),
        ({"item": "pen", "price": 7}, ("paid", "price", "seen")),
        ({"item": 7}, None),
        ({}, None),
        ({"item": "pen", "price": "much"}, None),
    ],
)
def test_an_edited_state_is_checked_and_its_changes_are_named(
    app: App, state: dict[str, Any], changed: tuple[str, ...] | None
) -> None:
    of = ended(app)
    if changed is None:
        with pytest.raises(InvalidInput):
            fork(app, of, "deliver", state=state)
        assert app.do(app.store.load(RUN, (app.runtime.operations.tenant, "fork-deliver-ask"))) is None
    else:
        assert fork(app, of, "deliver", state=state).changed == changed


def test_a_shared_call_counts_from_its_use(app: App) -> None:
    """Another run has made it in its third visit. This run used it in the second, and it was undone since."""
    maker = app.start(loops, {"item": "ink"})
    app.clock.advance("1m")
    of = ended(app, "ink")
    app.clock.advance("1m")
    tenant = app.runtime.operations.tenant
    row = app.do(app.store.load(EFFECT, (tenant, "", 0, "index/ink")))
    assert maker.status == "completed" and row is not None
    events = app.do(app.store.rows(EVENT, (tenant, of)))
    entered = {event.visit: event.at for event in events if event.type == EventType.CHECKPOINT}
    foreign = row._replace(by_run=maker.id, first_visit=3)
    for visit, at in ((1, 0), (2, entered[2]), (3, entered[3] + 1)):
        (used,) = as_used(of, [foreign], [Usage(tenant, of, row.key, at)], events)
        assert used.first_visit <= visit
        undone = used._replace(status=EffectStatus.UNDONE)
        assert [point.visit for point in points_of(events, [undone]) if point.to_accept] == [
            each for each in (2, 3) if each > used.first_visit
        ]
    (own,) = as_used(of, [row], [], events)
    assert own == row


def test_an_undone_call_of_another_run_needs_to_be_accepted(app: App) -> None:
    """The other run made it in a later visit than that in which this run used it."""
    maker = app.start(loops, {"item": "ink"})
    run = app.start(remembers, {"item": "pen"})
    assert (maker.status, run.status) == ("completed", "completed")
    tenant = app.runtime.operations.tenant
    row = app.do(app.store.load(EFFECT, (tenant, "", 0, "index/pen")))
    assert row is not None and row.by_run == run.id
    undone = row._replace(version=row.version + 1, by_run=maker.id, first_visit=9, status=EffectStatus.UNDONE)
    app.do(app.store.commit(Commit((Put(EFFECT, undone, row.version),))))
    _, offers = app.do(fork_start.offers_of(app.store, tenant, run.id))
    assert {point.node: len(point.to_accept) for point, _ in offers} == {"once": 0, "twice": 1, "thrice": 1}


def test_a_fork_without_approvers_is_refused(app: App) -> None:
    of = ended(app)
    for effects in ("ask", "recorded"):
        with pytest.raises(InvalidInput):
            fork(app, of, "buy", approvers="", effects=effects)


def test_an_unknown_checkpoint_is_refused(app: App) -> None:
    of = ended(app)
    with pytest.raises(NotFound):
        fork(app, of, "nowhere")


def test_the_same_id_is_the_same_fork_and_another_one_is_refused(app: App, outside: Outside) -> None:
    of = ended(app)
    assert fork(app, of, "begin", effects="live").created
    before = [*outside.writes]
    assert not fork(app, of, "begin", effects="live").created
    assert outside.writes == before
    with pytest.raises(Conflict):
        fork(app, of, "begin", effects="live", lookups="live")


@pytest.mark.parametrize("landed", [0, 1, 2])
def test_a_start_that_was_interrupted_goes_on(
    app: App, monkeypatch: pytest.MonkeyPatch, outside: Outside, landed: int
) -> None:
    """Each copy is a commit here. Until the last one, no run exists."""
    of = ended(app)
    before = [*outside.writes]
    monkeypatch.setattr(fork_start, "in_portions", lambda puts: [(put,) for put in puts])
    commits, commit = [0], app.store.commit

    async def dies(given: Any) -> Any:
        commits[0] += "fork-" in given.label  # a worker commits too
        if commits[0] > landed and "fork-" in given.label:
            raise ConnectionAbortedError
        return await commit(given)

    with monkeypatch.context() as dying:
        dying.setattr(app.store, "commit", dies)
        with pytest.raises(ConnectionAbortedError):
            fork(app, of, "deliver", effects="recorded")
    app.settle()
    assert app.do(app.store.load(RUN, (app.runtime.operations.tenant, "fork-deliver-recorded"))) is None
    started = fork(app, of, "deliver", effects="recorded")
    assert started.created and run_of(app, started.run).status == "completed"
    assert outside.writes == before


def test_signals_are_delivered_if_they_are_unread_or_named(app: App) -> None:
    run = app.start(hears, {"item": "pen"})
    run.signal("early", {"text": "before"}, signal_id="e-1")
    run.signal("word", {"text": "one"}, signal_id="w-1")
    run.signal("word", {"text": "two"}, signal_id="w-2")
    assert run.status == "completed"
    tenant = app.runtime.operations.tenant

    def forked(name: str, *signals: str) -> list[tuple[str, str]]:
        asked = ForkRequest(run.id, "second", effects="live", signals=signals)
        app.do(fork_start.fork(app.store, hears, asked, tenant=tenant, actor="ana", run=name))
        app.settle()
        delivered = [m for m in app.rows(name).messages if m.kind == "signal"]
        assert [m.name for m in app.rows(name).messages if m not in delivered] == [run.id], (
            "one message says who forked it"
        )
        return [(m.name, json.loads(m.payload)["text"]) for m in delivered]

    assert forked("none") == [("early", "before")]
    assert forked("one", "w-2") == [("early", "before"), ("word", "two")]
    assert forked("all", "all") == [("early", "before"), ("word", "two")]
    signals = [message for message in app.rows("all").messages if message.kind == "signal"]
    assert all(message.actor.endswith(f" (to run {run.id})") for message in signals)
    with pytest.raises(NotFound):
        forked("wrong", "w-9")


def test_events_name_the_ancestor(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "deliver")
    bodies = [json.loads(event.body) for event in app.events(started.run)]
    assert {body["forkedfrom"] for body in bodies} == {of}
    assert all("forkedfrom" not in body["data"] for body in bodies)
    assert bodies[0]["data"]["fork"]["seq"] == started.point.seq
    assert "forkedfrom" not in json.loads(app.events(of)[0].body)


def test_a_webhook_leaves_forks_out_unless_it_asks_for_them(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "deliver")
    plain = Subscription("t", "wh", 1, SubscriptionStatus.ACTIVE, "u", "", "", "", "", "", 0, 0, "", "", 0, "", 0, "")
    (own, *_), (event, *_) = app.events(of), app.events(started.run)
    assert wants_event(plain, own) and not wants_event(plain, event)
    assert wants_event(plain._replace(forks=1), event)
    kind, type_ = next(iter(CARRIED_BY.items()))
    to_approvers = plain._replace(audience="*", types_text=TYPES.encode((kind,)))
    assert wants_event(to_approvers, event._replace(kind=type_.removeprefix("dev.outlast.")))


def test_the_store_is_whole_after_forks(app: App) -> None:
    of = ended(app)
    for effects in ("ask", "recorded", "live"):
        fork(app, of, "buy", effects=effects)
    fork(app, "fork-buy-live", "deliver", effects="recorded")
    report = app.do(Fsck(app.store, chain=True).look())
    assert report.findings == ()


def test_fsck_finds_a_copy_that_differs_from_its_ancestor(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "deliver", effects="recorded")
    tenant = app.runtime.operations.tenant
    (effect, *_) = (row for row in app.rows(of).effects if row.visit)
    changed = effect._replace(response=b'"another"')
    rows = app.rows(started.run)
    ledger = ledger_of({(memo.visit, memo.key): memo for memo in rows.memos})
    (found,) = copies_match(rows.run, ledger, [changed])
    assert found[1] == (tenant, of, effect.visit, effect.key)
    assert [*copies_match(rows.run, ledger, [effect])] == []
    assert [*copies_match(rows.run, ledger, [changed._replace(version=9)])] == [], "a person has answered since"
    assert len([*copies_match(rows.run, None, [])]) == 1


def test_clients_see_the_lineage(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "deliver")
    operations = app.runtime.operations
    assert run_of(app, started.run).forked_from == of
    assert [each.run for each in app.do(operations.runs(forked_from=of)).runs] == [started.run]
    (first, *_, last) = app.do(operations.fork_points(of)).points
    assert (first.node, first.past, last.node) == ("begin", 0, "deliver")
    assert [call.key for call in last.later] == ["ship/pen", "index/pen"]


@pytest.mark.parametrize("effects", ["ask", "recorded", "live"])
def test_a_body_knows_the_calls_of_its_past_and_none_of_its_future(app: App, outside: Outside, effects: Any) -> None:
    """What a body learns from `ctx.recorded` is what its ancestor learned there: an agent asks its model the same."""
    of = app.start(remembers, {"item": "pen"})
    learned, before = of.state.seen, [*outside.writes]
    assert len(learned) == 8 and learned[2] == "2: index/pen 0 1 True"
    for point in ("once", "twice", "thrice") if effects == "recorded" else ("twice", "thrice"):
        approvers = "" if effects == "live" else "lead"
        asked = ForkRequest(of.id, point, effects=effects, approvers=approvers)
        tenant, run = app.runtime.operations.tenant, f"knows-{point}"
        app.do(fork_start.fork(app.store, remembers, asked, tenant=tenant, actor="ana", run=run))
        app.settle()
        found = AppRun(app, remembers, run)
        assert found.status == "completed"
        assert [without_step(each) for each in found.state.seen] == [without_step(each) for each in learned], point
    assert outside.writes == before


def without_step(known: str) -> str:
    """Return what a body learned, without the visit of a call once per tenant, which a fork may not know."""
    visit, key, scope, made_in, done = known.split()
    return f"{visit} {key} {scope} {'' if key.startswith('index') else made_in} {done}"


REMOVED: dict[str, Callable[[App, Outside], None]] = {
    "forks_ask_nobody": lambda app, outside: test_outside_record_does_not_grow(app, outside, "buy", "ask"),
    "fork_uses_forgotten": lambda app, outside: test_a_recorded_answer_serves_one_call(app, outside),
    "undone_pasts_accepted": lambda app, outside: test_effects_that_were_undone_need_to_be_accepted(app, outside),
    "lineages_share_nothing": lambda app, outside: test_two_forks_make_a_call_once_per_run_once(app, outside),
    "pasts_not_answered": lambda app, outside: test_a_live_fork_makes_what_the_policy_allows_and_no_call_once_per_run(
        app, outside
    ),
    "uses_not_counted": lambda app, outside: test_an_undone_call_of_another_run_needs_to_be_accepted(app),
    "pasts_not_known": lambda app, outside: test_a_body_knows_the_calls_of_its_past_and_none_of_its_future(
        app, outside, "ask"
    ),
    "futures_known": lambda app, outside: test_a_body_knows_the_calls_of_its_past_and_none_of_its_future(
        app, outside, "recorded"
    ),
    "runs_in_flight_forked": lambda app, outside: test_a_run_in_flight_is_refused(app),
    "fork_before_its_copies": lambda app, outside: test_outside_record_does_not_grow(app, outside, "deliver", "ask"),
}
"""The test that fails without each safeguard."""


@pytest.mark.parametrize("removed", REMOVED)
def test_without_a_safeguard_its_test_fails(
    outlast_app: Callable[..., App], outside: Outside, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    remove(removed, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        REMOVED[removed](outlast_app(orders, loops, hears, remembers), outside)
