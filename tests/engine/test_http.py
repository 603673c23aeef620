"""Calls over real HTTP: every status of S-17 in every mode, Retry-After, the key and the deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel

import outlast.http
from outlast import (
    Context,
    DidNotHappen,
    Happened,
    Retry,
    Unknown,
    Workflow,
    activity,
    lookup,
    resend,
    this_call,
)
from outlast.core.durations import Liveness
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store
from tests.engine.shop import Manner, Shop

Mode = Literal["ask", "repeat", "reconcile"]
MODES: tuple[Mode, ...] = ("ask", "repeat", "reconcile")
CALL = timedelta(seconds=2)  # where the shop is silent: all of it is waited for
CALL_ANSWERED = timedelta(seconds=20)
LIVE = Liveness(start_budget=1_000, settle_margin=100)
PATIENCE_S = 60.0
SOON = Retry(attempts=3, first=timedelta(milliseconds=20))
DEFINITE = (400, 401, 403, 404, 422)
SILENT = -1
PERHAPS = (0, SILENT, 302, 408, 409, 418, 500, 502, 503, 504)


class Case(BaseModel):
    path: str
    said: str = ""


class Expected(NamedTuple):
    """Expected state of the ledger and the shop."""

    status: str
    code: str
    calls: int
    acted: int


def expected(manner: Manner, mode: Mode) -> Expected:
    """Return the expected result by S-17, independently of the engine."""
    if manner.status in DEFINITE:
        return Expected("refused", f"http_{manner.status}", 1, 0)
    if manner.status in (425, 429):
        return Expected("done", "", 2, 1)
    if mode == "repeat":
        return Expected("done", "", 2, 1)
    if mode == "reconcile":
        return Expected("done", "", 1 if manner.acts else 2, 1)
    code = {0: "error", SILENT: "timeout"}.get(manner.status, f"http_{manner.status}")
    return Expected("uncertain", code, 1, int(manner.acts))


CASES = [
    *(Manner(status) for status in DEFINITE),
    *(Manner(status, headers="Retry-After: 0\r\n") for status in (425, 429)),
    *(Manner(status, acts) for status in PERHAPS for acts in (False, True)),
]


class Trial(NamedTuple):
    """A serving runtime, and the shop that its workflows order from."""

    runtime: InProcessRuntime
    shop: Shop

    async def order(self, mode: str, path: str, run: str = "") -> Effect:
        """Start a run that orders once, and answer its effect once the run has ended or needs a person."""
        handle = await self.runtime.start(
            workflow_name=mode, input={"path": path}, idempotency_key=run or f"{mode}{path}", correlation_id="c"
        )
        async with asyncio.timeout(PATIENCE_S):
            await self.runtime.finished(handle.id)
        (effect,) = await self.effects(handle.id)
        return effect

    async def effects(self, run: str) -> list[Effect]:
        rows = await self.runtime.store.rows(EFFECT, ("default", run))
        return [row for row in rows if isinstance(row, Effect)]


def ordering(
    mode: Mode,
    http: outlast.http.AsyncClient,
    shop: Shop,
    *,
    retry: Retry = SOON,
    name: str = "",
    timeout: timedelta = CALL,
) -> Workflow[Case]:
    """A workflow named after the mode, which posts once."""
    name = name or mode
    doubt: Any = resend(remembered_for=timedelta(hours=1)) if mode == "repeat" else "ask_person"

    @activity(key="order/{path}", name=f"order.{name}", if_uncertain=doubt, no_undo="-", timeout=timeout, retry=retry)
    async def order(path: str) -> str:
        return str((await http.post(shop.url + path)).json())

    if mode == "reconcile":

        @order.reconcile
        async def find(path: str) -> Happened[str] | DidNotHappen | Unknown:
            answer = await http.get(f"{shop.url}/known", params={"key": this_call().idempotency_key})
            return DidNotHappen() if answer.status_code == 404 else Happened(str(outlast.http.checked(answer).json()))

    flow = Workflow(name, state=Case)

    @flow.node(start=True)
    async def only(ctx: Context[Case]) -> None:
        ctx.state.said = await ctx.do(order, ctx.state.path)

    return flow


def trial(
    test: Callable[[Trial], Awaitable[None]],
    *more: Callable[[outlast.http.AsyncClient, Shop], Workflow[Any]],
    retry: Retry = SOON,
) -> None:
    """Run a test against a shop, with a workflow for each mode and those given."""

    async def go() -> None:
        async with AsyncExitStack() as stack:
            shop = await stack.enter_async_context(Shop())
            http = await stack.enter_async_context(outlast.http.AsyncClient())
            store = await open_store("memory:")
            stack.push_async_callback(store.close)
            flows = [ordering(mode, http, shop, retry=retry) for mode in MODES] + [make(http, shop) for make in more]
            runtime = await stack.enter_async_context(InProcessRuntime(store, flows, live=LIVE))
            await test(Trial(runtime, shop))

    asyncio.run(go())


@pytest.mark.req("EFF-2", "EFF-4", "EFF-5")
def test_every_status_in_every_mode() -> None:
    """The table of S-17: the recorded status, the number of calls, and the number of actions."""

    async def test(t: Trial) -> None:
        async def one(manner: Manner, mode: Mode) -> None:
            path = f"/{named(manner, mode)}"
            t.shop.manners[path] = manner
            effect = await t.order(named(manner, mode), path)
            code = effect.code
            (key,) = t.shop.keys[path]  # one key for all attempts
            found = Expected(effect.status.value, code, t.shop.calls[path], t.shop.did[key])
            assert found == expected(manner, mode), path

        answered = [manner for manner in CASES if manner.status != SILENT]
        for manners in (answered, [manner for manner in CASES if manner not in answered]):  # a short time is for few
            await asyncio.gather(*(one(manner, mode) for manner in manners for mode in MODES))

    def named(manner: Manner, mode: Mode) -> str:  # an activity for each: none is cut off for what another one met
        return f"{mode}.{manner.status}.{int(manner.acts)}"

    def flow(manner: Manner, mode: Mode) -> Callable[[outlast.http.AsyncClient, Shop], Workflow[Any]]:
        timeout = CALL if manner.status == SILENT else CALL_ANSWERED
        return partial(ordering, mode, name=named(manner, mode), timeout=timeout)

    trial(test, *(flow(manner, mode) for manner in CASES for mode in MODES))


@pytest.mark.req("EFF-4")
def test_nothing_is_sent_if_no_server_listens() -> None:
    """Connection refused and a name that does not exist: nothing happened, in every mode, and attempts are used up."""

    async def test(t: Trial) -> None:
        t.shop.url = "http://127.0.0.1:1"
        for mode in MODES:
            effect = await t.order(mode, "/x")
            assert (
                effect.status.value == "refused" and "retries_exhausted" in effect.error_text and effect.attempts == 2
            )
        t.shop.url = "http://no-such-host.invalid"
        effect = await t.order("ask", "/y")
        assert effect.status.value == "refused" and "not_sent" in effect.error_text

    trial(test, retry=Retry(attempts=2, first=timedelta(milliseconds=10)))


# --- FAIL-2: a tool times out after performing the effect -----------------------------------------------
def performed_then_silent(mode: Mode) -> tuple[Effect, int, int]:
    """The shop acts, and says nothing until the call's time is over: the effect, the calls, and what it did."""
    found: list[tuple[Effect, int, int]] = []

    async def test(t: Trial) -> None:
        t.shop.manners["/slow"] = Manner(SILENT, acts=True)
        effect = await t.order(mode, "/slow")
        found.append((effect, t.shop.calls["/slow"], sum(t.shop.did.values())))

    trial(test)
    return found[0]


@pytest.mark.req("FAIL-2", "EFF-2")
def test_fail_2_a_tool_times_out_after_performing_the_effect_and_a_person_is_asked() -> None:
    effect, calls, did = performed_then_silent("ask")
    assert (effect.status.value, calls, did) == ("uncertain", 1, 1)


@pytest.mark.req("FAIL-2", "EFF-2")
def test_fail_2_a_tool_times_out_after_performing_the_effect_and_the_same_key_is_sent_again() -> None:
    effect, calls, did = performed_then_silent("repeat")
    assert (effect.status.value, calls, did) == ("done", 2, 1)


@pytest.mark.req("FAIL-2", "EFF-2")
def test_fail_2_a_tool_times_out_after_performing_the_effect_and_the_receiver_is_asked() -> None:
    effect, calls, did = performed_then_silent("reconcile")
    assert (effect.status.value, calls, did, effect.settled_by) == ("done", 1, 1, "reconcile")


# --- Retry-After ------------------------------------------------------------------------------------------
@pytest.mark.req("EFF-4")
def test_retry_after_is_waited_for() -> None:
    """At least the seconds asked for lie between two calls: after 425 and 429 in any mode, after 408 too."""

    async def test(t: Trial) -> None:
        async def one(mode: Mode, status: int) -> None:
            path = f"/{mode}/{status}"
            t.shop.manners[path] = Manner(status, headers="Retry-After: 1\r\n")
            effect = await t.order(mode, path)
            assert effect.status.value == "done" and effect.waited_ms >= 1_000, path

        await asyncio.gather(one("ask", 429), one("reconcile", 425), one("repeat", 408), one("reconcile", 408))

    trial(test)


@pytest.mark.req("EFF-4")
def test_a_retry_after_beyond_the_total_wait_is_said_in_one_sentence() -> None:
    """429 is refused as retries_exhausted; 408 is uncertain, or refused once the receiver is known not to have it."""

    async def test(t: Trial) -> None:
        async def one(mode: Mode, status: int, acts: bool, ends: str) -> None:
            path = f"/{mode}/{status}/{acts}"
            t.shop.manners[path] = Manner(status, acts, headers="Retry-After: 86400\r\n")
            effect = await t.order(mode, path)
            assert effect.status.value == ends, path
            if ends != "done":
                assert "retries_exhausted" in effect.error_text and f"http_{status}" in effect.error_text
                assert (
                    "asks to wait 86400 s" in effect.error_text and "retry.total_wait leaves 60 s" in effect.error_text
                )
            assert t.shop.calls[path] == 1

        await asyncio.gather(
            one("ask", 429, False, "refused"),
            one("repeat", 408, False, "uncertain"),
            one("reconcile", 408, False, "refused"),
            one("reconcile", 408, True, "done"),
        )

    trial(test)


# --- the client -------------------------------------------------------------------------------------------
@pytest.mark.req("EFF-5")
def test_only_effects_carry_the_idempotency_key() -> None:
    """POST in a write: the key. GET in a write, and everything a reconcile asks: none."""

    async def test(t: Trial) -> None:
        t.shop.manners["/c"] = Manner(409)
        effect = await t.order("reconcile", "/c")
        assert effect.status.value == "done"
        posts = [head for method, _, head in t.shop.heads if method == "POST"]
        asked = [head for method, _, head in t.shop.heads if method == "GET"]
        assert len(asked) >= 2 and all("idempotency-key" not in head for head in asked)
        assert len(posts) == 2 and len({head["idempotency-key"] for head in posts}) == 1

    trial(test)


@pytest.mark.req("EFF-4", "EFF-7")
def test_the_ledger_keeps_the_receivers_text_and_no_secret_of_the_address() -> None:
    async def test(t: Trial) -> None:
        t.shop.manners["/no?token=secret"] = Manner(422, body='{"title": "sold out"}')
        effect = await t.order("ask", "/no?token=secret")
        assert "sold out" in effect.error_text and "/no" in effect.error_text and "secret" not in effect.error_text

    trial(test)


@pytest.mark.req("EFF-7")
def test_the_receivers_id_is_recorded_also_if_the_call_failed_after_it() -> None:
    """Stated by the activity: kept with the effect that is done, and with the one that is uncertain."""

    def naming(http: outlast.http.AsyncClient, shop: Shop) -> Workflow[Case]:
        @activity(key="name/{path}", no_undo="-", timeout=CALL)
        async def name_it(path: str) -> str:
            await http.post(shop.url + path)
            this_call().set_external_id("PO-" + path.strip("/"))
            if path == "/b":
                raise TimeoutError("the confirmation did not come")
            return "ok"

        flow = Workflow("naming", state=Case)

        @flow.node(start=True)
        async def only(ctx: Context[Case]) -> None:
            ctx.state.said = await ctx.do(name_it, ctx.state.path)

        return flow

    async def test(t: Trial) -> None:
        done, doubt = await t.order("naming", "/a"), await t.order("naming", "/b")
        assert (done.status.value, done.external_id) == ("done", "PO-a")
        assert (doubt.status.value, doubt.external_id) == ("uncertain", "PO-b")

    trial(test, naming)


@pytest.mark.req("EFF-4")
def test_a_plain_function_ends_before_its_time_and_is_no_lost_thread() -> None:
    """Its client gives up before the engine does, so the outcome is a time-out that a repeat may follow."""

    def plain(_: outlast.http.AsyncClient, shop: Shop) -> Workflow[Case]:
        doubt = resend(remembered_for=timedelta(hours=1))

        @activity(key="plain/{path}", no_undo="-", timeout=CALL, if_uncertain=doubt)
        def order(path: str) -> str:
            with outlast.http.Client(timeout=None) as http:
                return str(http.post(shop.url + path).json())

        flow = Workflow("plain", state=Case)

        @flow.node(start=True)
        async def only(ctx: Context[Case]) -> None:
            ctx.state.said = await ctx.do(order, ctx.state.path)

        return flow

    async def test(t: Trial) -> None:
        t.shop.manners["/p"], t.shop.manners["/q"] = Manner(SILENT, acts=True), Manner(422, body='{"why": "no"}')
        slow, refused = await asyncio.gather(t.order("plain", "/p"), t.order("plain", "/q"))
        assert (slow.status.value, slow.attempts, sum(t.shop.did.values())) == ("done", 2, 1)
        assert refused.status.value == "refused" and '\\"why\\"' in refused.error_text

    trial(test, plain)


@pytest.mark.req("EFF-4")
def test_a_lookup_waits_as_it_is_asked_to() -> None:
    def asking(http: outlast.http.AsyncClient, shop: Shop) -> Workflow[Case]:
        @lookup(retry=Retry(first=timedelta(milliseconds=10)))
        async def price(path: str) -> str:
            return str((await http.post(shop.url + path)).json())

        @activity(key="mark/{path}", no_undo="-")
        async def mark(path: str) -> str:
            return path

        flow = Workflow("asking", state=Case)

        @flow.node(start=True)
        async def only(ctx: Context[Case]) -> None:
            ctx.state.said = await ctx.do(price, ctx.state.path)
            await ctx.do(mark, ctx.state.path)

        return flow

    async def test(t: Trial) -> None:
        t.shop.manners["/l"] = Manner(429, headers="Retry-After: 1\r\n")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await t.order("asking", "/l")
        assert loop.time() - begun >= 1 and t.shop.calls["/l"] == 2
        assert all("idempotency-key" not in head for _, _, head in t.shop.heads)

    trial(test, asking)
