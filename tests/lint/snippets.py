"""Workflows with one mistake each, and workflows without one that look alike. `HEAD` comes before each.

The line with the mistake ends with `#!`.
"""

from typing import Final

HEAD: Final = """import asyncio, contextlib, random, secrets, shutil, subprocess, time, uuid
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import httpx
import requests
from pydantic import BaseModel, Field

import outlast.http
from outlast import (Context, DidNotHappen, Happened, Refused, Retry, Unknown, Workflow, activity, lookup, resend,
                     role, this_call)
from outlast.agent import Message, propose

class Order(BaseModel):
    number: str = ""
    items: list[str] = []

class Receipt(BaseModel):
    id: str

flow = Workflow("order", state=Order)
shop = outlast.http.AsyncClient(base_url="https://shop.example")

@activity(key="order/{number}", once_per="run", no_undo="cancelled by mail", timeout="100s")
async def order(number: str, cents: int = 0) -> str:
    return number

@lookup(key="price/{item}")
async def price_of(item: str) -> int:
    return 1

"""

BAD: Final[dict[str, tuple[str, str]]] = {
    "a key without a field": ("OL101", '''
@activity(key="pay", no_undo="-")  #!
async def pay(invoice: str) -> None: ...
'''),
    "a key of an amount": ("OL101", '''
@activity(key="refund/{cents}", no_undo="-")  #!
async def refund(order_id: str, cents: int) -> None: ...
'''),
    "a key of a text": ("OL101", '''
@activity(key="mail/{body}", no_undo="-")  #!
def mail(body: str, to: str) -> None: ...
'''),
    "one key for a tenant": ("OL101", '''
@activity(key="publish", once_per="tenant", no_undo="-")  #!
async def publish() -> None: ...
'''),
    "a key of an attempt": ("OL102", '''
@activity(key="pay/{invoice}/{attempt}", no_undo="-")  #!
async def pay(invoice: str, attempt: int) -> None: ...
'''),
    "a key of a timestamp": ("OL102", '''
@activity(key="report/{timestamp}", no_undo="-")  #!
async def report(timestamp: str) -> None: ...
'''),
    "an argument of the key from uuid4": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.do(order, str(uuid.uuid4()))  #!
'''),
    "a name that holds the time": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    number = f"{ctx.state.number}-{datetime.now():%s}"
    await ctx.do(order, number)  #!
'''),
    "a plan with a random key": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    tail = secrets.token_hex(4)
    plan = order.plan(number=ctx.state.number + tail)  #!
    await ctx.do(plan)
'''),
    "a position as a key": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    for n, item in enumerate(ctx.state.items):
        await ctx.do(order, str(n))  #!
'''),
    "a model's text as a key": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    found = await propose(ctx, "m", [Message(role="user", text="which?")])
    await ctx.do(order, found.answer.text)  #!
'''),
    "a child of a random key": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.run(other, other.arguments(ctx.state.number), key=f"buy-{uuid.uuid4()}")  #!
'''),
    "a signal of a random id": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.child("buy").signal("go", ctx.state, id=f"go-{uuid.uuid4()}")  #!
'''),
    "a child of the time": ("OL102", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    now = datetime.now()
    await ctx.start(other, when=str(now))  #!
'''),
    "a request in a policy": ("OL201", '''
def rules(asked):
    requests.get("https://rules.example")  #!

other = Workflow("other", state=Order, policy=rules)
'''),
    "an activity in an outcome": ("OL201", '''
def result(state: Order) -> str:
    return order(state.number)  #!

other = Workflow("other", state=Order, outcome=result)
'''),
    "a file written by an outcome": ("OL201", '''
def result(state: Order) -> str:
    Path("out").write_text(state.number)  #!
    return state.number

other = Workflow("other", state=Order, outcome=result)
'''),
    "a second order in a reconcile function": ("OL202", '''
@order.reconcile
async def find(number: str, cents: int = 0) -> Happened[str] | DidNotHappen | Unknown:
    await shop.post("/orders", json={"number": number})  #!
    return Unknown("?")
'''),
    "an activity in a reconcile function": ("OL202", '''
@order.reconcile
async def find(number: str, cents: int = 0) -> Happened[str] | DidNotHappen | Unknown:
    return Happened(await order(number))  #!
'''),
    "a request in a node": ("OL301", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await shop.post("/orders", json={})  #!
'''),
    "a request whose response is read": ("OL301", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    response = requests.get("https://shop.example")  #!
    response.raise_for_status()
    ctx.state.number = response.json()["number"] + response.headers.get("etag", "")
'''),
    "a method of a connection": ("OL301", '''
bank = httpx.Client()

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    ctx.state.number = bank.get("https://shop.example").json()["number"]  #!
'''),
    "a file in a node": ("OL301", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    with open("orders.txt", "a") as file:  #!
        file.write(ctx.state.number)
'''),
    "a process started by a helper": ("OL301", '''
def build(number: str) -> None:
    subprocess.run(["make", number])  #!

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    build(ctx.state.number)
'''),
    "a client made in the node": ("OL301", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    async with httpx.AsyncClient() as client:
        await client.get("https://shop.example")  #!
'''),
    "the clock in a node": ("OL302", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    if datetime.now().hour > 17:  #!
        await ctx.do(order, ctx.state.number)
'''),
    "a choice by chance": ("OL302", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    ctx.state.number = random.choice(ctx.state.items)  #!
'''),
    "a sleep of the process": ("OL303", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await asyncio.sleep(60)  #!
    await ctx.do(order, ctx.state.number)
'''),
    "a bare except": ("OL304", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    try:
        await ctx.receive("bid", Receipt, timeout="1h")
    except:  #!
        ctx.state.number = "none"
'''),
    "a suppressed cancellation": ("OL304", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    with contextlib.suppress(asyncio.CancelledError):  #!
        await ctx.sleep("1h")
'''),
    "a call without await": ("OL305", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    ctx.do(order, ctx.state.number)  #!
'''),
    "a coroutine that nothing reads": ("OL305", '''
async def pay(ctx: Context[Order]) -> None:
    await ctx.do(order, "1")

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    later = pay(ctx)  #!
'''),
    "a helper of an activity without await": ("OL305", '''
async def book(number: str) -> None: ...

@activity(key="book/{number}", no_undo="-")
async def booked(number: str) -> None:
    book(number)  #!
'''),
    "a def that returns a coroutine": ("OL305", '''
async def book(number: str) -> str: ...

@activity(key="book/{number}", no_undo="-")
def booked(number: str) -> str:
    return book(number)  #!
'''),
    "a timer around a wait": ("OL306", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await asyncio.wait_for(ctx.receive("bid", Receipt), 60)  #!
'''),
    "a race of waits": ("OL306", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    bid = asyncio.ensure_future(ctx.receive("bid", Receipt))
    end = asyncio.ensure_future(ctx.sleep("1h"))
    await asyncio.wait({bid, end}, return_when="FIRST_COMPLETED")  #!
'''),
    "a wait for a name that no signal has": ("OL401", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.receive("bid of supplier", Receipt)  #!
'''),
    "a signal without values": ("OL401", '''
class Bid(BaseModel):
    cents: int = Field(gt=100, lt=100)

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.receive("bid", Bid)  #!
'''),
    "a sleep of millennia": ("OL405", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.sleep("9999999d")  #!
'''),
    "the last day of the calendar": ("OL405", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.sleep(until=datetime(9999, 12, 31))  #!
'''),
    "a time limit that is no duration": ("OL405", '''
WITHIN = "4 days"

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.approval(order.plan("1"), summary="-", by=role("lead"), within=WITHIN)  #!
'''),
    "more days than a duration holds": ("OL405", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.receive("go", Order, timeout=timedelta(days=10_000_000_000))  #!
'''),
    "the longest timedelta": ("OL405", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.collect("go", Order, timeout=timedelta.max)  #!
'''),
    "retries after the receiver forgot": ("OL402", '''
@activity(key="pay/{invoice}", no_undo="-", retry=Retry(attempts=9, total_wait="2d"),
          if_uncertain=resend(remembered_for="24h"))  #!
async def pay(invoice: str) -> None: ...
'''),
    "a memory that the receiver does not promise": ("OL402", '''
STRIPE = "https://api.stripe.com/v1"

@activity(key="pay/{invoice}", no_undo="-", if_uncertain=resend(remembered_for=timedelta(days=30)))  #!
async def pay(invoice: str) -> None:
    await shop.post(f"{STRIPE}/charges")
'''),
    "a file in the state": ("OL403", '''
class Scan(BaseModel):
    page: bytes = b""  #!

scans = Workflow("scan", state=Scan)
'''),
    "a text that no state can hold": ("OL403", '''
class Book(BaseModel):
    text: str = Field("", max_length=100_000_000)  #!

books = Workflow("book", state=Book, outcome=lambda state: len(state.text))
'''),
    "more calls than a claim": ("OL404", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    for n in range(1, 40):
        await ctx.do(order, f"{ctx.state.number}-{n}")  #!
'''),
    "a silenced rule without a reason": ("OL001", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    print(len(ctx.state.items))  # outlast: ignore[OL302]  #!
'''),
    "a comment with a code that no rule has": ("OL002", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    print(1)  # outlast: ignore[OL999] a typing mistake  #!
'''),
    "a comment that silences nothing": ("OL002", '''
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    print(1)  # outlast: ignore[OL302] the day decides  #!
'''),
}  # fmt: skip
"""Name → the code of the rule, and the source."""

GOOD: Final[dict[str, str]] = {
    "a key of an order and an amount": """
@activity(key="refund/{order_id}/{cents}", no_undo="-")
async def refund(order_id: str, cents: int) -> None: ...
""",
    "a key without fields of a call without arguments": """
@activity(key="publish", once_per="run", no_undo="-")
async def publish() -> None: ...
""",
    "a key of a round": """
@activity(key="invite/{supplier}/{round}", no_undo="-")
async def invite(supplier: str, round: int, text: str) -> None: ...
""",
    "a key of a day": """
@activity(key="report/{day}", no_undo="-")
async def report(day: str) -> None: ...
""",
    "an argument from ctx.uuid": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.do(order, str(ctx.uuid("order")))
""",
    "an argument from the time of the run": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    today = f"{ctx.now():%Y-%m-%d}"
    await ctx.do(order, today)
""",
    "a random value that is no part of the key": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.do(order, ctx.state.number, round(ctx.random("cents") * 100))
""",
    "an argument from a recorded lookup": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    price = await ctx.do(price_of, ctx.state.items[0])
    await ctx.do(order, f"{ctx.state.number}-{price}")
""",
    "rounds of a range": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    for n in range(3):
        await ctx.do(order, f"{ctx.state.number}-{n}")
""",
    "names of answers by position": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.do_all({f"{n}": order.plan(item) for n, item in enumerate(ctx.state.items)})
""",
    "a typed answer of a model": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    found = await propose(ctx, "m", [Message(role="user", text="which?")], result=Receipt)
    ctx.state.number = found.result.id
""",
    "a policy that computes": """
def rules(asked):
    return asked.activity != "order" or datetime.fromisoformat("2026-01-01").year > 2000

other = Workflow("other", state=Order, policy=rules)
""",
    "an outcome that computes": """
def result(state: Order) -> str:
    return ", ".join(sorted(state.items))

other = Workflow("other", state=Order, outcome=result)
""",
    "a reconcile function that asks": """
@order.reconcile
async def find(number: str, cents: int = 0) -> Happened[str] | DidNotHappen | Unknown:
    response = await shop.get("/orders", params={"key": this_call().idempotency_key})
    return Happened(number) if response.status_code == 200 else DidNotHappen()
""",
    "a request in an activity": """
@activity(key="post/{number}", no_undo="-")
async def post(number: str) -> None:
    await shop.post("/orders", json={"number": number, "at": time.time(), "id": str(uuid.uuid4())})
""",
    "a file and a process in an activity": """
@activity(key="build/{number}", no_undo="-")
def build(number: str) -> None:
    Path("build.log").write_text(number)
    subprocess.run(["make", number], check=True)
    time.sleep(1)
""",
    "files of a program beside the workflow": """
def main() -> None:
    shutil.copy("a", "b")
    print(requests.get("https://shop.example").text, random.random())
""",
    "a client that is made and not used": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    timeout = httpx.Timeout(5)
    ctx.log("timeout", str(timeout.connect))
""",
    "parts of a response that an activity returned": """
@lookup(key="page/{item}")
async def page(item: str) -> str:
    response = httpx.get("https://shop.example")
    response.raise_for_status()
    return response.json()

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    ctx.state.number = (await ctx.do(page, "1")).strip()
""",
    "the time of the run": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    if ctx.now().hour > 17:
        await ctx.do(order, ctx.state.number)
""",
    "a measured duration": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    begun = time.perf_counter()
    ctx.log("took", f"{time.perf_counter() - begun:.1f}")
""",
    "a random generator with a seed": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    ctx.state.items = random.Random(7).sample(ctx.state.items, 2)
""",
    "a turn of the loop": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await asyncio.sleep(0)
    await ctx.sleep("5m")
""",
    "a refusal that is caught": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    try:
        await ctx.do(order, ctx.state.number)
    except (Refused, ValueError) as no:
        ctx.state.number = str(no)
""",
    "an exception that is raised again": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    try:
        await ctx.sleep("1h")
    except BaseException:
        ctx.log("left", "the process")
        raise
""",
    "a suppressed refusal": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    with contextlib.suppress(Refused):
        await ctx.do(order, ctx.state.number)
""",
    "coroutines that are gathered": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    one, other = ctx.do(order, "1"), ctx.do(order, "2")
    await asyncio.gather(one, other)
    calls = [ctx.do(price_of, item) for item in ctx.state.items]
    await asyncio.gather(*calls)
""",
    "a timer around a computation": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    async with asyncio.timeout(5):
        ctx.state.items.sort()
    await ctx.receive("bid", Receipt, timeout="1h")
""",
    "durations of every form": """
WITHIN = "1d12h"

@flow.node(start=True)
async def buy(ctx: Context[Order], later: datetime, rest: str) -> None:
    await ctx.sleep("90s")
    await ctx.sleep(timedelta(days=36_525))
    await ctx.sleep(until=datetime(2030, 1, 1))
    await ctx.sleep(until=later)
    await ctx.receive("go", Order, timeout=rest)
    await ctx.approval(order.plan("1"), summary="4 days", by=role("lead"), within=WITHIN, valid_for="2h")
""",
    "a helper that an activity awaits": """
async def book(number: str) -> str:
    return number

@activity(key="book/{number}", no_undo="-")
async def booked(number: str) -> str:
    task = asyncio.create_task(book(number))
    return await task

@lookup
def sent(book: str) -> str:
    return str(book)
""",
    "a helper with the name of a parameter": """
async def send(number: str) -> None: ...

@activity(key="send/{number}", no_undo="-")
def sending(number: str, send: str) -> str:
    return send.upper()
""",
    "a signal with limits": """
class Bid(BaseModel):
    cents: int = Field(gt=0, le=100)
    note: Annotated[str, Field(min_length=1, max_length=80)]

@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.receive("supplier.bid", Bid, timeout="1h")
    await ctx.collect("bid-2", Bid, timeout="1h", limit=3)
""",
    "retries within the memory of the receiver": """
@activity(key="pay/{invoice}", no_undo="-", retry=Retry(attempts=3, total_wait="10m"),
          if_uncertain=resend(remembered_for="24h"))
async def pay(invoice: str) -> None:
    await shop.post("https://api.stripe.com/v1/charges")
""",
    "a bounded text and the address of a file": """
class Scan(BaseModel):
    page: str = ""
    text: str = Field("", max_length=100_000)
    digest: bytes = Field(b"", max_length=32)

scans = Workflow("scan", state=Scan)
""",
    "calls of several visits": """
@flow.node(start=True, max_visits=50)
async def buy(ctx: Context[Order]) -> Literal["buy"] | None:
    await ctx.do(order, ctx.state.items.pop())
    return "buy" if ctx.state.items else None
""",
    "a silenced rule with its reason": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    print(datetime.now())  # outlast: ignore[OL302] for people at a terminal only
""",
    "a parameter with the name of a module": """
@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    def shown(requests: list[str], random: dict[str, int]) -> str:
        return random.get(requests.pop(), 0)
    ctx.state.number = str(shown(ctx.state.items, {}))
""",
}
