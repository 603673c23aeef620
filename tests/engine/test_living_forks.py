"""Forks of a run that has not ended: both go on, and neither repeats or undoes an effect that the other relies on."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, Refused, Workflow, activity
from outlast.core.commit import Commit, Erase
from outlast.core.forks import ledger_of
from outlast.core.limits import FORKS_NOTED_MAX
from outlast.core.living_forks import NOTES, notes_of
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.mailbox import REOPENED
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, MEMO
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import RUN
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest, StartedFork
from outlast.errors import Conflict, LimitExceeded
from outlast.store.port import maintenance
from outlast.testing.virtual_runtime import App, AppRun, skip
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.fsck_checks import fork_noted
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10")

WHY = "the customer asked for both"


class Order(BaseModel):
    """State of an order."""

    item: str
    sent: str = ""
    fails: bool = False


@dataclass
class Outside:
    """Requests that the receivers got, and what happens during one of them."""

    writes: list[str] = field(default_factory=list)
    during: dict[str, Callable[[], Awaitable[Any]]] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    loses: set[str] = field(default_factory=set)

    def count(self, word: str) -> int:
        """Return the number of requests of a kind."""
        return sum(each.split()[0] == word for each in self.writes)


OUTSIDE = Outside()


@pytest.fixture(autouse=True)
def outside() -> Outside:
    """Return an empty record."""
    OUTSIDE.writes, OUTSIDE.during, OUTSIDE.refuses, OUTSIDE.loses = [], {}, set(), set()
    return OUTSIDE


async def write(what: str) -> str:
    """Count a request; it is answered, refused, or its answer is lost."""
    OUTSIDE.writes.append(what)
    if (act := OUTSIDE.during.pop(what, None)) is not None:
        await act()
    if what in OUTSIDE.refuses:
        raise Refused("no", f"{what} is refused")
    if what in OUTSIDE.loses:
        raise ConnectionAbortedError("no answer came")
    return f"{what} no. {len(OUTSIDE.writes)}"


@activity(key="reserve/{item}")
async def reserve(item: str) -> str:
    """Reserve an item."""
    return await write(f"reserve {item}")


@reserve.undo
async def release(response: str, item: str) -> None:
    """Give an item back."""
    await write(f"release {item}")


@activity(key="pack/{item}", no_undo="a box is cheap")
async def pack(item: str) -> str:
    """Pack an item."""
    return await write(f"pack {item}")


@activity(key="ship/{item}", once_per="run", if_uncertain="ask_person")
async def ship(item: str) -> str:
    """Ship an item, once per run."""
    return await write(f"ship {item}")


@ship.undo
async def fetch_back(response: str, item: str) -> None:
    """Fetch an item back."""
    await write(f"fetch {item}")


@activity(key="bill/{item}", no_undo="it is written off")
async def bill(item: str) -> str:
    """Bill an item."""
    return await write(f"bill {item}")


class Go(BaseModel):
    """A signal without data."""


orders = Workflow("living_orders", state=Order)


@orders.node(start=True)
async def begin(ctx: Context[Order]) -> Literal["deliver"]:
    """Reserve."""
    await ctx.do(reserve, ctx.state.item)
    return "deliver"


@orders.node
async def deliver(ctx: Context[Order]) -> Literal["settle"]:
    """Pack, wait, and ship."""
    await ctx.do(pack, ctx.state.item)
    await ctx.receive("go", Go)
    with suppress(Refused):
        ctx.state.sent = await ctx.do(ship, ctx.state.item)
    return "settle"


@orders.node
async def settle(ctx: Context[Order]) -> None:
    """Bill, wait, then end."""
    await ctx.do(bill, ctx.state.item)
    await ctx.receive("end", Go)
    if ctx.state.fails:
        raise Fail("it was not to be")


direct = Workflow("direct_orders", state=Order)


@direct.node(start=True)
async def both(ctx: Context[Order]) -> None:
    """Pack and ship."""
    await ctx.do(pack, ctx.state.item)
    await ctx.do(ship, ctx.state.item)


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, outlast_app: Callable[..., App]) -> App:
    """Return an app that serves the orders."""
    return outlast_app(orders, direct, store=request.param)


async def begun(
    app: App, of: str, point: str, of_workflow: Workflow[Order, Any, Any] = orders, **given: Any
) -> StartedFork:
    """Fork a run that has not ended."""
    asked = ForkRequest(of, point, **{"both_go_on": WHY, "effects": "live", **given})
    tenant = app.runtime.operations.tenant
    return await fork_start.fork(app.store, of_workflow, asked, tenant=tenant, actor="ana", run=f"fork-{asked.effects}")


def fork(app: App, of: str, point: str, **given: Any) -> AppRun[Order]:
    """Fork a run that has not ended, and let both go as far as they can."""
    started = app.do(begun(app, of, point, **given))
    app.settle()
    return AppRun(app, orders, started.run)


def notes(app: App, run: str) -> list[str]:
    """Return the forks that the ledger of a run notes."""
    return [note.fork for note in notes_of({(memo.visit, memo.key): memo for memo in app.rows(run).memos})]


def started(app: App, **given: Any) -> AppRun[Order]:
    """Return an order that waits before it ships."""
    run = app.start(orders, {"item": "pen", **given})
    assert run.status == "waiting"
    return run


def ends(*runs: AppRun[Order]) -> None:
    """Send both signals to runs that wait for them."""
    for run in runs:
        run.signal("go", {})
    for run in runs:
        run.signal("end", {})


# --- terms ---------------------------------------------------------------------------------------------
def test_a_run_in_flight_needs_a_reason_and_is_told(app: App) -> None:
    run = started(app)
    with pytest.raises(Conflict) as refused:
        fork(app, run.id, "deliver", both_go_on="")
    assert refused.value.refusal == "not_ended" and "--both-go-on" in str(refused.value)
    assert notes(app, run.id) == []
    child = fork(app, run.id, "deliver")
    assert notes(app, run.id) == [child.id]
    (told,) = [event.data() for event in app.events(run.id) if event.kind == "run.forked"]
    assert (told["fork"], told["by"], told["reason"], told["checkpoint"]) == (child.id, "ana", WHY, 3)
    ends(run, child)
    assert (run.status, child.status) == ("completed", "completed")


def test_explain_of_each_names_the_other(app: App) -> None:
    run = started(app)
    child = fork(app, run.id, "deliver")
    explain = app.runtime.operations.explain
    assert app.do(explain(run.id)).facts["forks that go on, too"] == f"{child.id} by ana at checkpoint 3: {WHY}"
    assert app.do(explain(child.id)).facts["fork of"] == (
        f"{run.id} at checkpoint 3, which had not ended and goes on, too: {WHY}"
    )


def test_the_same_start_notes_one_fork(app: App) -> None:
    run = started(app)
    assert app.do(begun(app, run.id, "deliver")).created
    assert not app.do(begun(app, run.id, "deliver")).created
    assert notes(app, run.id) == ["fork-live"]


def test_a_run_that_undoes_is_refused_until_it_has_ended(app: App, outside: Outside) -> None:
    run = started(app, fails=True)
    outside.refuses.add("release pen")
    ends(run)
    assert run.status == "compensating"
    with pytest.raises(Conflict) as refused:
        fork(app, run.id, "deliver")
    assert refused.value.refusal == "compensating"
    preview = app.do(app.runtime.operations.fork_preview(run.id, "deliver", effects="live", both_go_on=WHY))
    assert preview.in_flight and any("undoes" in each for each in preview.refused)


def test_the_forks_of_a_run_in_flight_are_limited(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FORKS_NOTED_MAX == 100
    monkeypatch.setattr("outlast.core.living_forks.FORKS_NOTED_MAX", 1)
    run = started(app)
    fork(app, run.id, "deliver")
    with pytest.raises(LimitExceeded):
        fork(app, run.id, "deliver", effects="recorded", approvers="lead")


# --- calls once per run -------------------------------------------------------------------------------
@pytest.mark.parametrize("first", ["run", "fork"])
def test_both_make_a_call_once_per_run_once(app: App, outside: Outside, first: str) -> None:
    run = started(app)
    child = fork(app, run.id, "deliver")
    both = (run, child) if first == "run" else (child, run)
    ends(*both)
    assert (run.status, child.status) == ("completed", "completed")
    assert [outside.count(word) for word in ("reserve", "pack", "ship", "bill")] == [1, 2, 1, 2]
    assert run.state.sent == child.state.sent == "ship pen no. 4"


@pytest.mark.parametrize("during", ["pack pen", "bill pen"])
def test_a_run_that_is_executed_while_it_is_forked_learns_of_it(app: App, outside: Outside, during: str) -> None:
    """The note lands while a call of the run is in flight, before or after it has shipped."""
    outside.during[during] = lambda: begun(app, "order-1", "deliver")
    app.do(app.runtime.operations.start(orders, {"item": "pen"}, run_id="order-1"))
    app.settle()
    run, child = AppRun(app, orders, "order-1"), AppRun(app, orders, "fork-live")
    ends(run)
    ends(child)
    assert (run.status, child.status) == ("completed", "completed")
    assert notes(app, run.id) == ["fork-live"]
    assert [outside.count(word) for word in ("reserve", "pack", "ship", "bill")] == [1, 2, 1, 2]


def test_an_intent_that_has_not_read_the_note_is_refused(app: App, outside: Outside) -> None:
    """The fork ships while its ancestor, which has not read the note, is about to ship in the same visit."""
    shipped = asyncio.Event()

    async def forks() -> None:
        await begun(app, "order-1", "both", of_workflow=direct)
        await shipped.wait()

    async def ships() -> None:
        shipped.set()

    outside.during |= {"pack pen": forks, "ship pen": ships}
    app.do(app.runtime.operations.start(direct, {"item": "pen"}, run_id="order-1"))
    app.settle()
    assert [outside.count(word) for word in ("pack", "ship")] == [2, 1]
    rows = app.rows("order-1")
    assert {(each.by_run, each.key) for each in rows.shared} == {("fork-live", "lineage?order-1/ship/pen")}
    assert not any(each.key == "ship/pen" for each in rows.effects)


def test_a_call_that_a_person_lets_its_run_repeat_is_waited_for(app: App, outside: Outside) -> None:
    run = started(app)
    outside.loses.add("ship pen")
    run.signal("go", {})
    assert run.attention == ["effect_uncertain"]
    child = fork(app, run.id, "deliver")
    child.signal("go", {})
    assert [each.kind for each in child.now.waiting_for] == ["effect"]
    outside.loses.clear()
    app.clock.advance("5m")
    run.resolve("ship/pen", "did_not_happen")
    app.clock.advance("5m")
    ends(run, child)
    assert (run.status, child.status) == ("completed", "completed")
    assert outside.count("ship") == 2, "one whose answer was lost, and that which a person let the run repeat"


def test_a_start_that_is_repeated_with_other_terms_is_noted_again(
    app: App, monkeypatch: pytest.MonkeyPatch, outside: Outside
) -> None:
    """The note of the first one says that the fork relies on less."""
    run = started(app)

    async def dies(*given: Any) -> Any:
        raise ConnectionAbortedError

    with monkeypatch.context() as dying:
        dying.setattr(fork_start, "begin_or_join", dies)
        with pytest.raises(ConnectionAbortedError):
            app.do(begun(app, run.id, "begin"))
    child = fork(app, run.id, "deliver")
    assert notes(app, run.id) == [child.id, child.id]
    run.cancel()
    assert outside.count("release") == 0, "the fork relies on what was reserved"
    assert app.do(Fsck(app.store, chain=True).look()).findings == ()


def test_fsck_finds_a_fork_without_its_note(app: App) -> None:
    run = started(app)
    child = fork(app, run.id, "deliver")
    fsck = Fsck(app.store, chain=True)
    assert app.do(fsck.look()).findings == ()
    ancestor, fork_row = app.rows(run.id), app.rows(child.id)
    ledger = ledger_of({(memo.visit, memo.key): memo for memo in fork_row.memos})
    written = notes_of({(memo.visit, memo.key): memo for memo in ancestor.memos})
    assert ledger is not None and len(written) == 1
    other = written[0]._replace(effects="ask")
    for kept, found in ((written, 0), ([], 1), ([other], 1)):
        assert len([*fork_noted(fork_row.run, ledger.terms, ancestor.run, kept)]) == found
    ended_before = ancestor.run._replace(status=RunStatus.COMPLETED, ended_at=fork_row.run.created_at)
    assert [*fork_noted(fork_row.run, ledger.terms, ended_before, ())] == []
    assert [*fork_noted(fork_row.run, ledger.terms, None, ())] == []
    (note,) = (memo for memo in ancestor.memos if memo.key.startswith(NOTES))
    app.do(app.store.commit(Commit((Erase(MEMO, key_of(MEMO, note)),))))
    assert [(each.check, each.key[1]) for each in app.do(fsck.look()).findings] == [("fork_noted", child.id)]


@pytest.mark.parametrize("kind", ["ledger", "run"])
@pytest.mark.parametrize("answer", ["happened", "did_not_happen"])
def test_a_person_is_asked_about_a_call_whose_run_was_purged(
    app: App, outside: Outside, kind: str, answer: Literal["happened", "did_not_happen"]
) -> None:
    """The fork has copied an uncertain call. Before it asks for it, the run has ended and is gone."""
    run = started(app)
    outside.loses.add("ship pen")
    run.signal("go", {})
    child = fork(app, run.id, "deliver")
    assert child.waiting_for == ["signal go"]
    app.clock.advance("5m")
    run.resolve("ship/pen", "happened", "it came")
    ends(run)
    upkeep = maintenance(app.store)
    app.do(skip(app.store, hours=1))
    assert app.do((upkeep.purge_ledgers if kind == "ledger" else upkeep.purge)(app.do(app.store.now()).business, 10))
    outside.loses.clear()
    child.signal("go", {})
    assert child.attention == ["effect_uncertain"]
    assert outside.count("ship") == 1
    assert app.do(Fsck(app.store, chain=True).look()).findings == ()
    key = f"lineage?{run.id}/ship/pen"
    child.resolve(key, answer, *(["it came"] if answer == "happened" else []))
    if answer == "happened":
        assert (child.state.sent, outside.count("ship")) == ("it came", 1)
    else:
        assert outside.count("ship") == 2, "a person knows that the first one did not happen"
    child.cancel()
    assert child.status == "cancelled"
    undone = outside.count("fetch")
    assert undone == (answer == "did_not_happen"), "a fork undoes its own calls only"
    assert app.do(Fsck(app.store, chain=True).look()).findings == ()


def test_two_forks_ask_about_a_purged_call_once(app: App, outside: Outside) -> None:
    run = started(app)
    outside.loses.add("ship pen")
    run.signal("go", {})
    child = fork(app, run.id, "deliver")
    other = fork(app, run.id, "deliver", effects="recorded", approvers="lead")
    app.clock.advance("5m")
    run.resolve("ship/pen", "happened", "it came")
    ends(run)
    app.do(skip(app.store, hours=1))
    assert app.do(maintenance(app.store).purge_ledgers(app.do(app.store.now()).business, 10))
    outside.loses.clear()
    child.signal("go", {})
    other.signal("go", {})
    assert (child.attention, other.attention) == (["effect_uncertain"], [])
    assert [each.kind for each in other.now.waiting_for] == ["effect"]
    child.resolve(f"lineage?{run.id}/ship/pen", "happened", "it came")
    app.clock.advance("5m")
    assert [each.state.sent for each in (child, other)] == ["it came", "it came"]
    assert outside.count("ship") == 1


def test_a_fork_of_a_fork_gets_the_answer_of_a_call_that_its_ancestor_had_open(app: App, outside: Outside) -> None:
    """The call of a fork has a row of the lineage, which is not under the key of the run that made it."""
    run = started(app)
    child = fork(app, run.id, "deliver")
    outside.loses.add("ship pen")
    child.signal("go", {})
    assert child.attention == ["effect_uncertain"]
    grandchild = fork(app, child.id, "deliver", effects="recorded", approvers="lead")
    outside.loses.clear()
    grandchild.signal("go", {})
    assert [each.kind for each in grandchild.now.waiting_for] == ["effect"]
    app.clock.advance("5m")
    child.resolve(f"lineage?{run.id}/ship/pen", "happened", "it came")
    app.clock.advance("5m")
    assert [each.state.sent for each in (child, grandchild)] == ["it came", "it came"]
    assert outside.count("ship") == 1


def test_a_fork_does_not_make_a_call_that_its_ancestor_will_repeat(
    app: App, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fork looks after the answer of the person, and before its ancestor intends the call again."""
    run = started(app)
    outside.loses.add("ship pen")
    run.signal("go", {})
    child = fork(app, run.id, "deliver")
    load = app.store.load

    async def answered(kind: Any, key: Any) -> Any:
        row = await load(kind, key)
        if kind is not EFFECT or row is None:
            return row
        error = ERROR.encode(EffectError(REOPENED, "it was not sent"))
        return row._replace(status=EffectStatus.REFUSED, error_text=error, settled_at=1)

    monkeypatch.setattr(app.store, "load", answered)
    child.signal("go", {})
    assert [each.kind for each in child.now.waiting_for] == ["effect"]
    assert outside.count("ship") == 1


def test_a_fork_of_a_fork_in_flight_shares_with_the_oldest(app: App, outside: Outside) -> None:
    run = started(app)
    child = fork(app, run.id, "deliver")
    grandchild = fork(app, child.id, "deliver", effects="recorded", approvers="lead")
    assert notes(app, run.id) == [child.id] and notes(app, child.id) == [grandchild.id]
    for each in (grandchild, run, child):
        each.signal("go", {})
    while grandchild.waiting_for and grandchild.waiting_for[0].startswith("approval"):
        grandchild.approve()
    assert outside.count("ship") == 1


# --- undo --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("point", ["begin", "deliver"])
def test_a_run_does_not_undo_what_its_fork_relies_on(app: App, outside: Outside, point: str) -> None:
    """The run has shipped when it is forked. It fails, and a person decides about each effect that the fork has."""
    run = started(app, fails=True)
    run.signal("go", {})
    child = fork(app, run.id, point)
    run.signal("end", {})
    assert run.attention == ["undo_failed"], "the latest effect is that which it shipped"
    assert outside.count("fetch") == outside.count("release") == 0
    assert f"run {child.id}, a fork of this run, relies on it" in str(app.rows(run.id).effects)
    run.answer("undo_failed", "done_by_hand")
    assert outside.count("release") == (point == "begin")
    assert (run.status == "failed") == (point == "begin")


def test_a_fork_of_a_run_in_flight_undoes_its_own_effects_only(app: App, outside: Outside) -> None:
    run = started(app)
    child = fork(app, run.id, "deliver")
    child.cancel()
    assert child.status == "cancelled" and outside.count("release") == 0
    ends(run)
    assert run.status == "completed"


# --- purge, crash ------------------------------------------------------------------------------------
@pytest.mark.parametrize("landed", range(4))
def test_a_start_that_was_interrupted_goes_on(
    app: App, monkeypatch: pytest.MonkeyPatch, outside: Outside, landed: int
) -> None:
    """The run acts between the two attempts, so their copies differ, and the fork has those of the second."""
    run = started(app)
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
            app.do(begun(app, run.id, "deliver"))
    run.signal("go", {})
    child = fork(app, run.id, "deliver")
    ends(child)
    ends(run)
    assert (run.status, child.status) == ("completed", "completed")
    assert outside.count("ship") == 1
    assert app.do(Fsck(app.store, chain=True).look()).findings == ()


@pytest.mark.parametrize("reading", [1, 2])
def test_a_run_that_ends_and_is_purged_while_it_is_forked(
    app: App, monkeypatch: pytest.MonkeyPatch, outside: Outside, reading: int
) -> None:
    """It is purged just before its rows are read for the first or the second time. Nothing begins with half a past."""
    run = started(app)
    if reading == 1:
        ends(run)
    read, count = app.store.run_rows, [0]
    starting: list[asyncio.Task[Any] | None] = []

    async def starts() -> None:
        starting.append(asyncio.current_task())
        await begun(app, run.id, "deliver")

    async def purges(runs: Any) -> Any:
        count[0] += asyncio.current_task() in starting  # a worker reads the run too
        if count[0] == reading and asyncio.current_task() in starting:
            if reading == 2:
                for name in ("go", "end"):
                    await app.runtime.operations.signal(run.id, name, {})
                await app.runtime.operations.run_end(run.id, within_s=20)
            await skip(app.store, hours=1)
            assert await maintenance(app.store).purge_ledgers((await app.store.now()).business, 10)
        return await read(runs)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(app.store, "run_rows", purges)
        with pytest.raises(Conflict) as refused:
            app.do(starts())
    app.settle()
    assert refused.value.refusal == "purged"
    assert app.do(app.store.load(RUN, (app.runtime.operations.tenant, "fork-live"))) is None
    assert outside.count("ship") == 1


def test_an_interrupted_start_goes_on_with_the_calls_as_they_are_now(
    app: App, monkeypatch: pytest.MonkeyPatch, outside: Outside
) -> None:
    """The first attempt copied a call that was uncertain. A person has settled it since."""
    run = started(app)
    outside.loses.add("ship pen")
    run.signal("go", {})

    async def dies(*given: Any) -> Any:
        raise ConnectionAbortedError

    with monkeypatch.context() as dying:
        dying.setattr(fork_start, "_first_commit", dies)
        with pytest.raises(ConnectionAbortedError):
            app.do(begun(app, run.id, "deliver"))
    run.resolve("ship/pen", "happened", "it came")
    try:
        child = fork(app, run.id, "deliver")
    except Conflict as error:
        pytest.fail(str(error))
    ends(child)
    assert (child.state.sent, outside.count("ship")) == ("it came", 1)


REMOVED: dict[str, Callable[[App, Outside], None]] = {
    "runs_in_flight_forked": lambda app, outside: test_a_run_in_flight_needs_a_reason_and_is_told(app),
    "notes_not_read": lambda app, outside: test_both_make_a_call_once_per_run_once(app, outside, "run"),
    "intents_without_version": test_an_intent_that_has_not_read_the_note_is_refused,
    "purges_not_seen": lambda app, outside: test_a_run_that_ends_and_is_purged_while_it_is_forked(
        app, pytest.MonkeyPatch(), outside, 1
    ),
    "forks_not_kept": lambda app, outside: test_a_run_does_not_undo_what_its_fork_relies_on(app, outside, "deliver"),
    "reopened_made_by_a_fork": lambda app, outside: test_a_fork_does_not_make_a_call_that_its_ancestor_will_repeat(
        app, outside, pytest.MonkeyPatch()
    ),
    "first_notes_kept": lambda app, outside: test_a_start_that_is_repeated_with_other_terms_is_noted_again(
        app, pytest.MonkeyPatch(), outside
    ),
    "purged_calls_made": test_two_forks_ask_about_a_purged_call_once,
    "pasts_of_every_attempt": lambda app, outside: test_an_interrupted_start_goes_on_with_the_calls_as_they_are_now(
        app, pytest.MonkeyPatch(), outside
    ),
}
"""The test that fails without each safeguard."""


@pytest.mark.parametrize("removed", REMOVED)
def test_without_a_safeguard_its_test_fails(
    outlast_app: Callable[..., App], outside: Outside, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    remove(removed, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        REMOVED[removed](outlast_app(orders, direct), outside)
