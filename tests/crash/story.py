"""A run from its start to its end as a sequence of lives, each one a process; who acts next follows from the rows.

The same policy drives the uncrashed run and every recovery: look at the store, do the next thing. Time is the
parent's: it moves past a lease, a quiet time or a timer when nothing else is left to do.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.crash import world
from tests.crash.look import Look, look

ROOT = Path(__file__).parents[2]
T0 = 1_772_442_000_000  # 2026-03-02T09:00:00Z
PAST_LEASE_MS = 20_000
LIVES_MAX = 120  # a story that needs more goes round in circles


class Cell(NamedTuple):
    """A place in a life: the point, the run-verb-key it stands at, and which time it is reached there."""

    point: str
    label: str
    nth: int
    act: str = "kill"


class Action(NamedTuple):
    """What is done next, from when on."""

    do: str
    args: Mapping[str, Any] = MappingProxyType({})
    at: int = 0


class Life(NamedTuple):
    """How one life went."""

    action: Action
    died: int
    stopped: bool
    seen: list[Cell]
    answer: str


class Broken(AssertionError):
    """A life ended as it must not, or a story does not come to its end."""


class Unreached(Broken):
    """A cell did not fire: the life ended well before it came to it."""


@dataclass
class State:
    """A story between two lives: its files, the time, how many lives it has had."""

    folder: Path
    at: int = T0
    lives: int = 0

    @property
    def db(self) -> Path:
        return self.folder / "s.db"

    @property
    def world(self) -> Path:
        return self.folder / "world"

    def copy(self, to: Path) -> "State":
        """The same story in another folder."""
        to.mkdir(parents=True)
        for file in self.folder.iterdir():
            if not file.name.endswith(("-shm", ".lock", ".gate")):
                shutil.copyfile(file, to / file.name)
        return replace(self, folder=to)


@dataclass
class Workflow:
    """A workflow under test: how its story goes on, and what the world did."""

    name: str
    input: dict[str, Any]
    signals: Callable[[Look, State], list[tuple[str, dict[str, Any], str]]]
    env: Callable[[State], dict[str, str]]
    executed: Callable[[State], dict[str, int]]
    answer: Callable[[State, dict[str, Any]], Any]  # what the receiver answered for an effect; None: it never acted
    may_doubt: Callable[[str], bool]  # an effect of this key is at a receiver that neither dedupes nor can be asked
    enter: Callable[[State], None] = lambda state: None  # called when a story is taken up in a folder


class Zygote:
    """The parent's end of the process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise Broken("the zygote has ended")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@contextmanager
def zygote() -> Iterator[Zygote]:
    """A zygote that ends with the block."""
    one = Zygote()
    try:
        yield one
    finally:
        one.close()


@dataclass
class Teller:
    """Tells stories of one workflow with one zygote."""

    zygote: Zygote
    workflow: Workflow
    mutant: str = ""
    threads: bool = True
    alone: bool = True  # each logical commit in a transaction of its own; False: batched, as in production
    resolved: list[str] = field(default_factory=list)  # effects that were uncertain and that the teller answered
    env: dict[str, str] = field(default_factory=dict)

    # --- one life ----------------------------------------------------------------------------
    def live(self, state: State, action: Action, cell: Cell | None = None) -> Life:
        """One process does this from its birth to its end, its death at the cell, or its stop there."""
        state.at = max(state.at, action.at)
        state.lives += 1
        born = time.monotonic()
        answer = self.zygote.ask(self._ask(state, action, cell))
        state.at += int((time.monotonic() - born) * 1000) + 1
        life = _life(action, answer)
        if cell is None and life.died:
            raise Broken(f"{action.do} died of {life.died}: {answer.get('error', '')}")
        if cell is not None and cell.act == "kill" and life.died != -9:
            raise (Broken if life.died else Unreached)(f"{cell} did not fire: {life.died} {answer.get('error', '')}")
        if cell is not None and cell.act == "stop" and not life.stopped:
            raise Broken(f"{cell} did not stop it: died {life.died} {answer.get('error', '')}")
        return life

    def go_on(self) -> Life:
        """The stopped life goes on to its end."""
        answer = self.zygote.ask({"op": "go_on"})
        if answer["died"]:
            raise Broken(f"the life that went on died of {answer['died']}: {answer.get('error', '')}")
        return _life(Action("go on"), answer)

    def jump(self, state: State, ms: int) -> None:
        """Time passes for everybody, a stopped process included."""
        jumps = state.folder / "jumps"
        jumps.write_text(str(int(jumps.read_text() or "0") + ms if jumps.exists() else ms))
        state.at += ms

    def _ask(self, state: State, action: Action, cell: Cell | None) -> dict[str, Any]:
        return {
            "op": "life",
            "workflow": self.workflow.name,
            "db": str(state.db),
            "at": state.at,
            "jumps": str(state.folder / "jumps"),
            "n": state.lives,
            "do": action.do,
            "args": dict(action.args),
            "cell": cell._asdict() if cell else None,
            "mutant": self.mutant,
            "threads": self.threads,
            "alone": self.alone,
            "env": {world.FILE: str(state.world), **self.workflow.env(state), **self.env},
        }

    # --- what comes next -----------------------------------------------------------------------
    def next(self, state: State) -> Action | None:
        """What to do next; None when the run has ended. Raises Broken when nothing will ever happen."""
        seen = look(state.db)
        if not seen.slots:
            return Action("slots")
        if not seen.run:
            return Action("start", {"workflow": self.workflow.name, "input": self.workflow.input})
        if seen.over:
            return None
        if seen.run["owner"]:
            return Action("work", at=state.at + PAST_LEASE_MS)  # its holder died: the lease runs out
        if seen.run["due_at"] is not None and seen.run["due_at"] <= state.at:
            return Action("work")
        if seen.attention:
            return self._resolve(seen, state)
        return self._answer(seen, state)

    def _answer(self, seen: Look, state: State) -> Action:
        pending = [a for a in seen.approvals if a["status"] == "pending"]
        if pending:
            return Action("approve", {"approval": pending[0]["id"]})
        signals = [s for s in self.workflow.signals(seen, state) if s[2] not in seen.signals]
        if signals:
            return Action("post", {"signals": signals})
        if seen.run["due_at"] is None:
            raise Broken(f"nothing will ever move it: {seen.run}")
        return Action("work", at=seen.run["due_at"] + 1)

    def _resolve(self, seen: Look, state: State) -> Action:
        entry = seen.attention[0]
        uncertain = [e for e in seen.effects if e["status"] == "uncertain"]
        if not uncertain:
            raise Broken(f"it needs a person for {entry}")
        effect = uncertain[0]
        answer = self.workflow.answer(state, effect)
        self.resolved.append(effect["key"])
        if answer is not None:
            return Action("resolve", {"key": effect["key"], "verb": "happened", "response": answer})
        verb = {"key": effect["key"], "verb": "did_not_happen", "response": None}
        return Action("resolve", verb, at=effect["quiet_until"] + 1)

    def finish(self, state: State, each: Callable[[Life], None] = lambda life: None) -> Look:
        """Go on until the run has ended; answers the rows it leaves."""
        for _ in range(LIVES_MAX):
            action = self.next(state)
            if action is None:
                return look(state.db)
            each(self.live(state, action))
        raise Broken(f"{LIVES_MAX} lives and no end: {look(state.db).run}")


def _life(action: Action, answer: dict[str, Any]) -> Life:
    seen = [Cell(*one) for one in answer.get("seen", ())]
    return Life(action, answer["died"], answer["stopped"], seen, answer.get("answer", ""))
