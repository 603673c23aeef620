"""Callers of a round: each act has its own mark, and its answer is kept beside it."""

import asyncio
import functools
import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import outlast
from outlast.core.events import ENDINGS
from outlast.errors import OutlastError, RunCancelled, RunFailed, Unavailable, Uncertain
from tests import forked
from tests.proxied.proxy import DOOMED

HANG_S: Final = 60.0
"""A call that takes longer hangs. The timeout of the clients is TIMEOUT_S, and of `result` it is RESULT_S."""
COMMAND_S: Final = 200.0
"""As HANG_S, of a command. It sends two requests, and waits 60 s for each."""
TIMEOUT_S: Final = 5.0
RESULT_S: Final = (0, 1, 20)
REASON_CHARS: Final = 90
OTHER_WORKFLOW: Final = "nothing"
"""Webhooks get the events of this workflow only, so that the deliveries to an address without an answer are none."""
DONE, MAYBE, NOT_DONE = "done", "uncertain", "not done"


class Said(NamedTuple):
    """One act, by its mark, and the answer that its caller got."""

    act: str
    mark: str
    heard: str
    why: str

    @property
    def reason(self) -> str:
        """Return the reason without ids, as one line."""
        line = self.why.partition("\n")[0]
        return re.sub(r"m\d{6}|\b[a-z]+_[0-9a-z]+|:\d+", "…", line)[:REASON_CHARS]


def is_denied(heard: Sequence[str], *, created: bool) -> bool:
    """True if the last of the attempts with one key found what the earlier ones say was not done.

    An uncertain attempt before it may have done it.
    """
    return not created and bool(heard[:-1]) and set(heard[:-1]) == {NOT_DONE}


class Callers:
    """The acts of a round. `wrong` has a sentence for each answer that is false by itself."""

    def __init__(self, url: str, seed: int, *, cli: bool) -> None:
        self.said: list[Said] = []
        self.wrong: list[str] = []
        self.errors: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.longest: tuple[float, str] = (0.0, "")
        self._url, self._seed, self._cli = url, seed, cli
        self._n = 0
        self._stop = threading.Event()

    def mark(self) -> str:
        """Return a new mark."""
        self._n += 1
        return f"m{self._n:06d}"

    def stop(self) -> None:
        """Begin no further acts."""
        self._stop.set()

    async def go(self, tasks: int) -> None:
        """Act with several clients until `stop`."""
        threads = [asyncio.to_thread(self._sync, self._seed + 900)]
        threads += [asyncio.to_thread(self._commands) for _ in range(self._cli)]
        await asyncio.gather(*(self._client(self._seed + i) for i in range(tasks)), *threads)

    async def _client(self, seed: int) -> None:
        dice = random.Random(seed)
        while not self._stop.is_set():
            async with outlast.connect(self._url, timeout=TIMEOUT_S) as client:
                for _ in range(dice.randrange(5, 40)):
                    if self._stop.is_set():
                        return
                    await dice.choice(OPS)(self, client, dice)

    # --- one call ---------------------------------------------------------------------------------------
    async def try_(self, act: str, mark: str, call: Awaitable[Any]) -> tuple[str, Any]:
        """Await a call and return what it claims, with its value."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(HANG_S):
                return self._heard(act, mark, begun, None, await call)
        except (Exception, asyncio.CancelledError) as error:
            return self._heard(act, mark, begun, error, None)

    def _heard(self, act: str, mark: str, begun: float, error: BaseException | None, value: Any) -> tuple[str, Any]:
        self.calls[act] += 1
        self.longest = max(self.longest, (time.monotonic() - begun, f"{act} {mark}"))
        if error is None:
            return DONE, value
        if not isinstance(error, OutlastError):
            hangs = isinstance(error, TimeoutError) and time.monotonic() - begun >= HANG_S
            self.wrong.append(f"{act} {mark} {'hangs' if hangs else f'raised {error!r}, which is not of Outlast'}")
            return MAYBE, None
        self.errors[type(error).__name__] += 1
        return (MAYBE if isinstance(error, Uncertain) else NOT_DONE), error

    def keep(self, act: str, mark: str, heard: str, value: Any) -> None:
        """Keep what a call claims."""
        why = getattr(value, "why", "") or str(value)
        self.said.append(Said(act, mark, heard, f"{type(value).__name__}: {why}" if heard != DONE else ""))

    async def write(self, act: str, mark: str, call: Awaitable[Any]) -> Any:
        """Await a write and keep what it claims. Return its value if it was done."""
        heard, value = await self.try_(act, mark, call)
        self.keep(act, mark, heard, value)
        return value if heard == DONE else None

    # --- acts --------------------------------------------------------------------------------------------
    async def start(self, client: outlast.Client, dice: random.Random) -> None:
        """Start a run, follow it, and wait for its outcome."""
        mark = self.mark()
        run = await self.write("start", mark, client.start("quick", {"mark": mark}))
        if run is None:
            return
        if dice.random() < 0.3:
            await self._follow(client, run.id)
        heard, value = await self.try_("result", mark, run.result(dice.choice(RESULT_S)))
        if heard == DONE and value != mark:
            self.wrong.append(f"the outcome of {mark} is {value}")
        if isinstance(value, RunFailed | RunCancelled):
            self.wrong.append(f"the run of {mark}: {value}")

    async def _follow(self, client: outlast.Client, run: str) -> None:
        numbers, last = list[int](), ""

        async def follow() -> None:
            nonlocal last
            async for event in client.get(run).events():
                numbers.append(event.number)
                last = event.type
                if event.subject != run:
                    self.wrong.append(f"an event of {event.subject} in the stream of {run}")

        heard, _ = await self.try_("follow", run, follow())
        if heard == DONE and last not in ENDINGS:
            self.wrong.append(f"the events of {run} ended with {last!r}")
        if numbers != [*range(1, len(numbers) + 1)]:
            self.wrong.append(f"events of {run} came as {numbers}")

    async def start_twice(self, client: outlast.Client, dice: random.Random) -> None:
        """Start with a key, and again with the same after any error. Another input under the key is refused."""
        mark, heard, value = self.mark(), list[str](), None
        for _ in range(3):
            claim, value = await self.try_("start", mark, client.start("quick", {"mark": mark}, key=mark))
            heard.append(claim)
            if claim == DONE:
                break
        if heard[-1] == DONE and is_denied(heard, created=value.created):
            self.wrong.append(f"start {mark} was called not done, and then found: {heard}")
        if heard[-1] == DONE:
            self.keep("start", mark, DONE, value)
            other = self.mark()
            if await self.write("start", other, client.start("quick", {"mark": other}, key=mark)) is not None:
                self.wrong.append(f"the key of {mark} was taken for {other}")
            return
        self.keep("start", mark, MAYBE if MAYBE in heard else heard[-1], value)

    async def refused(self, client: outlast.Client, dice: random.Random) -> None:
        """Ask for what the service refuses: "nothing was changed" is the claim."""
        mark, word = self.mark(), self.mark()
        calls: tuple[tuple[str, str, Callable[[], Awaitable[Any]]], ...] = (
            ("start", mark, lambda: client.start("no_such", {"mark": mark})),
            ("start", mark, lambda: client.start("quick", {"other": mark})),
            ("signal", word, lambda: client.signal(f"no_{mark}", "word", {"text": word})),
            ("add webhook", mark, lambda: client.webhooks.add("ftp://example.com/", name=mark)),
            ("pause", mark, lambda: client.pause("activity", mark, reason="")),
        )
        act, mark_of, call = dice.choice(calls)
        if await self.write(act, mark_of, call()) is not None:
            self.wrong.append(f"{act} {mark_of} was not refused")

    async def doomed(self, client: outlast.Client, dice: random.Random) -> None:
        """Follow a run whose streams open and end, and which no caller can read: an error, and no endless attempts."""
        mark = self.mark()
        run = await self.write("start", mark, client.start("quick", {"mark": mark}, run_id=f"{DOOMED}_{mark}"))
        if run is None:
            return
        follows = dice.random() < 0.5

        async def follow() -> None:
            async for event in run.events():
                self.wrong.append(f"an event of {event.subject} came through")

        heard, value = await self.try_("doomed", mark, follow() if follows else run.result())
        if not isinstance(value, Unavailable):
            self.wrong.append(f"{'the stream' if follows else 'the result'} of {run.id}: {heard} {value!r}")

    async def talk(self, client: outlast.Client, dice: random.Random) -> None:
        """Signal, raise and cancel a run that waits."""
        mark = self.mark()
        run = await self.write("start talk", mark, client.start("talk", {"mark": mark}))
        if run is None:
            return
        for _ in range(3):
            word = self.mark()
            await self.write("signal", word, client.signal(run.id, "word", {"text": word}))
        for _ in range(2):
            await self.write("raise", run.id, client.raise_budget(run.id, calls=1, reason="more"))
        heard, value = await self.try_("run", run.id, client.run_summary(run.id))
        if heard == DONE and value.run != run.id:
            self.wrong.append(f"asked for {run.id}, and got {value.run}")

    async def cancel(self, client: outlast.Client, dice: random.Random) -> None:
        """Cancel a run that waits."""
        mark = self.mark()
        run = await self.write("start gate", mark, client.start("gate", {"mark": mark}))
        if run is not None:
            await self.write("cancel", run.id, client.cancel(run.id, reason=mark))

    async def decide(self, client: outlast.Client, dice: random.Random) -> None:
        """Approve a plan, which is then carried out once."""
        mark = self.mark()
        run = await self.write("start gate", mark, client.start("gate", {"mark": mark}))
        if run is None:
            return
        for _ in range(20):
            heard, page = await self.try_("approvals", mark, client.approvals(run=run.id))
            if heard == DONE and [each for each in page.approvals if each.run != run.id]:
                self.wrong.append(f"asked for approvals of {run.id}, and got others")
            elif heard == DONE and page.approvals:
                approval, stale = page.approvals[0].approval, page.approvals[0].version + 7
                act, decide = dice.choice((("approve", client.approve), ("reject", client.reject)))
                if dice.random() < 0.3:  # a version that no caller has seen
                    await self.write("stale decision", approval, decide(approval, reason=mark, version=stale))
                else:
                    await self.write(act, approval, decide(approval, reason=mark))
                return
            await asyncio.sleep(0.1)

    async def hook(self, client: outlast.Client, dice: random.Random) -> None:
        """Add a webhook, rotate its secret and remove it."""
        mark = self.mark()
        url = f"https://93.184.216.34/{mark}"
        made = await self.write("add webhook", mark, client.webhooks.add(url, name=mark, workflows=[OTHER_WORKFLOW]))
        if made is None:
            return
        if made.name != mark:
            self.wrong.append(f"added webhook {mark}, and got {made.name}")
        for _ in range(2):
            await self.write("rotate", mark, client.webhooks.rotate(made.webhook))
        await self.write("remove webhook", mark, client.webhooks.remove(made.webhook))

    async def pause(self, client: outlast.Client, dice: random.Random) -> None:
        """Pause an activity of this name, and mostly end the pause."""
        mark = self.mark()
        call = client.pause("activity", mark, reason=mark)
        if dice.random() < 0.3:
            await self.write("pause", mark, call)
        elif (await self.try_("pause", mark, call))[0] == DONE:
            await self.write("resume", mark, client.resume("activity", mark))

    async def read(self, client: outlast.Client, dice: random.Random) -> None:
        """Read lists of one workflow; those of another are another request's."""
        name = dice.choice(("quick", "talk", "gate"))
        heard, page = await self.try_("runs", name, client.runs(workflow=name, limit=3))
        if heard == DONE and [each for each in page.runs if each.workflow != name]:
            self.wrong.append(f"asked for runs of {name}, and got others")
        if heard == MAYBE:
            self.wrong.append(f"a read is uncertain: {page}")
        heard, caller = await self.try_("whoami", name, client.whoami())
        if heard == MAYBE:
            self.wrong.append(f"a read is uncertain: {caller}")

    # --- other callers --------------------------------------------------------------------------------------
    def _sync(self, seed: int) -> None:
        """Act with the client without await, and leave iterators open."""
        dice, left = random.Random(seed), []
        while not self._stop.is_set():
            with outlast.connect_sync(self._url, timeout=TIMEOUT_S) as client:
                for _ in range(5):
                    if self._stop.is_set():
                        break
                    mark = self.mark()
                    run = self._blocking(
                        "start", mark, lambda mark=mark: client.start("quick", {"mark": mark}), keep=True
                    )
                    if run is None:
                        continue
                    events = run.events()
                    self._blocking("follow", mark, functools.partial(next, events, None))
                    if dice.random() < 0.5:
                        left.append(events)
                    self._blocking("result", mark, functools.partial(run.result, 1))

    def _blocking(self, act: str, mark: str, call: Callable[[], Any], *, keep: bool = False) -> Any:
        begun = time.monotonic()
        try:
            heard, value = self._heard(act, mark, begun, None, call())
        except Exception as error:
            heard, value = self._heard(act, mark, begun, error, None)
        if keep:
            self.keep(act, mark, heard, value)
        return value if heard == DONE else None

    def _commands(self) -> None:
        """Start runs with the command line; its exit code is the claim. With a key it is repeated while uncertain."""
        dice = random.Random(self._seed + 901)
        while not self._stop.wait(1.0):
            mark, keyed = self.mark(), dice.random() < 0.5
            heard, text = self._command(mark, ("--key", mark) if keyed else ())
            for _ in range(2 if keyed else 0):
                if heard != MAYBE:
                    break
                again, text = self._command(mark, ("--key", mark))
                heard = again if again == DONE else MAYBE
            self.said.append(Said("command", mark, heard, text))

    def _command(self, mark: str, more: tuple[str, ...]) -> tuple[str, str]:
        begun = time.monotonic()
        command = ("outlast", "--url", self._url, "run", "quick", f"mark={mark}", *more)
        try:
            ended = forked.run(*command, capture_output=True, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"command {mark} hangs")
            return MAYBE, "hangs"
        text = ended.stderr.decode()
        self.calls["command"] += 1
        self.longest = max(self.longest, (time.monotonic() - begun, f"command {mark}"))
        heard = {0: DONE, 8: MAYBE}.get(ended.returncode, NOT_DONE)
        if heard == MAYBE and "the same --key" not in text and "without the same key" not in text:
            self.wrong.append(f"command {mark} does not say what is safe: {text}")
        if ended.returncode not in (0, 7, 8) or "Traceback" in text:
            self.wrong.append(f"command {mark} ended with {ended.returncode}: {text}")
        return heard, text


OPS: Final = (
    Callers.start, Callers.start, Callers.start_twice, Callers.start_twice, Callers.talk, Callers.cancel,
    Callers.decide, Callers.decide, Callers.hook, Callers.pause, Callers.read, Callers.refused, Callers.refused,
    Callers.doomed,
)  # fmt: skip
