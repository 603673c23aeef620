"""Forks of the examples from each of their checkpoints, and the requests that these send.

`python -m tests.examples.forks` walks all checkpoints of each example in each mode and prints a line for each walk.
Each receiver is an HTTP server that records its requests. A fact that a policy reads is no request of a run.
"""

import argparse
import itertools
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args

import click
import pytest

from examples.acquisition import office as acquisition_office
from examples.acquisition import policy as acquisition_policy
from examples.acquisition.workflow import acquisition
from examples.desk import office as desk_office
from examples.desk import policy as desk_policy
from examples.desk.workflow import desk
from examples.negotiation import suppliers as negotiation_suppliers
from examples.negotiation.letters import Feedback, Inquiry, Invitation, Proposal, bid_signal
from examples.negotiation.market.pricing import Stance, hear, offer
from examples.negotiation.workflow import negotiation
from outlast.agent.model import WAYS
from outlast.core.forks import CopiedCall, Effects, ForkPoint
from outlast.core.keys import UNDO, plain_key
from outlast.core.machine import ApprovalStatus
from outlast.engine.fork_start import ForkRequest, fork, offers_of
from outlast.flow.workflow import Workflow
from outlast.testing import App, FakeReceivers
from outlast.testing.http_receiver import HttpRequest
from outlast.testing.model_server import PATH, completions
from outlast.testing.record import RecordEntry
from outlast.testing.virtual_runtime import AppRun
from tests.examples.helpers import client
from tests.examples.negotiating import script
from tests.examples.tenders import World, world
from tests.examples.test_acquisition import LEAD
from tests.examples.test_desk import TASK
from tests.measured import unmeasured

MODES: Final[tuple[Effects, ...]] = get_args(Effects)
Offer = tuple[ForkPoint, list[CopiedCall]]
"""A checkpoint, and the calls that a fork from it copies."""
DECISIONS_MAX: Final = 200
CONFLICT: Final = "contradiction"
"""An earlier fork has made a call once per run with other arguments, for instance with another date (S-18, S-28)."""
LETTERS: Final = {"invitations": Invitation, "quotes": Invitation, "inquiries": Inquiry, "proposals": Proposal}


@dataclass
class Ground:
    """An example whose run has ended, its receivers, and all that moves a run but decisions of people."""

    app: App
    workflow: Workflow[Any, Any, Any]
    receivers: FakeReceivers
    facts: set[int] = field(default_factory=set)
    """Numbers of the entries of the record that are reads of the policy."""
    moves: Callable[[AppRun[Any]], bool] = lambda run: False
    """Lets the world answer a run that waits. Returns False if it has no answer."""
    run: AppRun[Any] = field(init=False)
    forked: int = 0

    def requests(self) -> list[RecordEntry]:
        """Return each request of a run that has arrived."""
        return [e for e in self.receivers.entries if e.kind in ("attempt", "asked") and e.n not in self.facts]

    def play(self, given: dict[str, Any]) -> None:
        """Play the run to its end. Each approval is given."""
        self.run = self.app.start(self.workflow, given)
        self.to_the_end(self.run)
        assert self.run.status in ("completed", "failed"), self.run.now.explained

    def to_the_end(self, run: AppRun[Any], at_most: int = DECISIONS_MAX) -> int:
        """Approve until a run has ended, or the decisions are used up. Returns their number."""
        for decided in range(at_most):
            self.go_on(run)
            if not asks_person(run):
                return decided
            run.approve()
        self.go_on(run)
        return at_most

    def go_on(self, run: AppRun[Any]) -> None:
        """Let a run go as far as it can without a decision."""
        while run.waiting_for and not run.attention and self.moves(run):
            pass

    def offers(self) -> list[Offer]:
        """Return the checkpoints of the run, each with the calls that its fork copies."""
        return self.app.do(offers_of(self.app.store, self.app.runtime.operations.tenant, self.run.id))[1]

    def fork(self, point: ForkPoint, effects: Effects) -> AppRun[Any]:
        """Fork the run, and let the fork go as far as it can without a decision."""
        asked = ForkRequest(
            self.run.id,
            str(point.seq),
            effects=effects,
            approvers="" if effects == "live" else "lead",
            signals=("all",) if effects == "recorded" else (),
            accept_undone=True,
        )
        self.forked += 1
        name, tenant = f"fork-{self.forked}", self.app.runtime.operations.tenant
        self.app.do(fork(self.app.store, self.workflow, asked, tenant=tenant, actor="ana", run=name))
        self.app.settle()
        run = AppRun(self.app, self.workflow, name)
        self.go_on(run)
        return run

    def approved(self, run: AppRun[Any]) -> set[str]:
        """Return the key of each call that was approved in a run."""
        given = [each for each in self.app.rows(run.id).approvals if each.status is not ApprovalStatus.PENDING]
        return {plan.key for each in given for plan in each.plans}


def asks_person(run: AppRun[Any]) -> bool:
    """Return True if the run waits for an approval."""
    return any(each.startswith("approval") for each in run.waiting_for)


def is_write(entry: RecordEntry) -> bool:
    """Return True for a request that changes something, False for one to a model or a read."""
    return entry.kind == "attempt" and not entry.route.endswith((PATH, desk_office.MODEL))


class Walk(NamedTuple):
    """Result of the forks of one example in one mode."""

    forks: int
    ended: int
    decided: int
    reads: int
    writes: int
    wrong: list[str]


def walk(ground: Ground, effects: Effects, offers: Sequence[Offer], decisions: int = DECISIONS_MAX) -> Walk:
    """Fork a run from each of the points, approve what is asked for, and compare the requests with the mode.

    `decisions`: at most so many approvals in each fork.
    """
    ended = decided = reads = writes = 0
    wrong = unmeasured(points=len(offers))
    for point, calls in offers:
        before = len(ground.requests())
        run = ground.fork(point, effects)
        found = _too_early(ground, effects, before)
        decided += ground.to_the_end(run, decisions)
        sent = ground.requests()[before:]
        found += _beyond(ground, effects, run, sent, calls)
        ended += run.status in ("completed", "failed")
        writes += sum(map(is_write, sent))
        reads += sum(not is_write(each) for each in sent)
        wrong += [f"{effects} from {point.seq} ({point.node}): {each}" for each in found]
    return Walk(len(offers), ended, decided, reads, writes, wrong)


def _too_early(ground: Ground, effects: Effects, before: int) -> list[str]:
    """Return the requests that were sent before a person approved, in a mode that asks."""
    grown = ground.requests()[before:]
    if effects == "live":
        grown = [each for each in grown if not is_write(each)]
    return [f"{each.title} was sent before a person approved" for each in grown]


def _key_of(key: str) -> str:
    """Return the key of the activity in an idempotency key, which is tenant:run:visit:key."""
    own = key.split(":", 3)[-1]
    prefix = UNDO if own.startswith(UNDO) else ""
    return prefix + plain_key(own.removeprefix(prefix))


def _beyond(
    ground: Ground, effects: Effects, run: AppRun[Any], sent: Sequence[RecordEntry], calls: Sequence[CopiedCall]
) -> list[str]:
    """Return what contradicts the mode in all requests of a fork."""
    keys = Counter(each.key for each in sent if is_write(each))
    made = {_key_of(key) for key in keys}
    free = made - ground.approved(run) if effects != "live" else set()
    free -= {f"{UNDO}{key}" for key in made}
    once = {call.key for call in calls if call.once_per != "visit" and call.status == "done"}
    again = {key for key, n in keys.items() if n > 1}
    found = [f"{key} was sent without an approval" for key in sorted(free)]
    found += [f"{key} was made again, although its ancestor has done it" for key in sorted(made & once)]
    found += [f"{key} was sent twice" for key in sorted(again)]
    if effects == "recorded":
        found += [f"{each.title} was asked again" for each in sent if not is_write(each)]
    found += [f"it requires attention: {each}" for each in run.attention if each != CONFLICT]
    stands = run.status in ("completed", "failed") or asks_person(run) or CONFLICT in run.attention
    return found if stands else [*found, f"it is {run.status}: {run.waiting_for}"]


# --- the examples ---------------------------------------------------------------------------------------
@contextmanager
def _app(workflow: Workflow[Any, Any, Any], receivers: FakeReceivers, policy: Any = None) -> Iterator[Ground]:
    """Yield the ground of an example. `policy`: the module whose facts are no requests of a run."""
    with receivers, pytest.MonkeyPatch.context() as patch:
        app = App((workflow,))
        try:
            ground = Ground(app, workflow, receivers)
            if policy is not None:
                asks = policy.ask_office

                def noted(path: str) -> Any:  # blocks the loop of the app, so no other request arrives meanwhile
                    before = len(receivers.entries)
                    try:
                        return asks(path)
                    finally:
                        ground.facts.update(entry.n for entry in receivers.entries[before:])

                patch.setattr(policy, "ask_office", noted)
            yield ground
        finally:
            app.close()


@contextmanager
def _desk(misbehaves: desk_office.Misbehaviour) -> Iterator[Ground]:
    with _app(desk, desk_office.office(misbehaves), desk_policy) as ground:
        ground.play(TASK)
        yield ground


@contextmanager
def _acquisition(misbehaves: acquisition_office.Misbehaviour) -> Iterator[Ground]:
    with _app(acquisition, acquisition_office.office(misbehaves), acquisition_policy) as ground:

        def time_passes(run: AppRun[Any]) -> bool:
            if asks_person(run):
                return False
            if "reply" in run.waiting_for[0]:
                ground.app.clock.skip("3d")
            else:
                ground.app.clock.advance("5s")
            return True

        ground.moves = time_passes
        ground.play(LEAD)
        yield ground


class Suppliers:
    """The suppliers of a world: an HTTP mailbox for each, whose bids become signals when the ground goes on."""

    def __init__(self, seed: int, receivers: FakeReceivers) -> None:
        self._receivers = receivers
        self._behaviours: World | None = None
        self._seed = seed
        self._stances: defaultdict[tuple[str, str, int], Stance] = defaultdict(Stance)
        self._bids: list[tuple[str, str, Invitation]] = []
        receivers.route("/suppliers", reply=self._take)

    def purchase(self) -> dict[str, Any]:
        """Return the purchase, whose mailboxes are those of the receivers."""
        self._behaviours = world(self._seed, market=self._receivers.url)
        return self._behaviours.purchase

    def _take(self, request: HttpRequest) -> Any:
        _, _, who, kind = request.path.split("/")
        letter = json.loads(request.body)
        if kind == "feedback":
            feedback = Feedback.model_validate(letter)
            hear(self._stances[feedback.run_id, who, feedback.cycle], feedback)
        elif kind in LETTERS:
            asked = LETTERS[kind].model_validate(letter)
            self._bids.append((who, asked.run_id, asked))
        return {("order_id" if kind == "orders" else "message_id"): f"{kind}-{who}-{len(self._receivers.entries)}"}

    def bid(self, app: App, run: AppRun[Any]) -> bool:
        """Send the bids that are due. Returns False if there was none."""
        assert self._behaviours is not None
        due, self._bids = self._bids, []
        for who, run_id, asked in due:
            stance = self._stances[run_id, who, asked.cycle]
            bid = offer(who, self._behaviours.suppliers[who], stance, asked)
            AppRun(app, negotiation, run_id).signal(
                bid_signal(bid.cycle, bid.round), bid.model_dump(mode="json"), signal_id=bid.bid_id
            )
        if due or asks_person(run):
            return bool(due)
        app.pass_until(min(each.until for each in app.rows(run.id).run.waiting_for))
        return True


@contextmanager
def _negotiation(seed: int) -> Iterator[Ground]:
    receivers = completions(FakeReceivers(env="OUTLAST_MODEL_URL"), script)
    suppliers = Suppliers(seed, receivers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLAST_MODEL", "local:script")
        patch.setenv("OUTLAST_MODEL_RESULT_BY", WAYS[0])
        patch.setenv(negotiation_suppliers.INBOX, "http://127.0.0.1:9")
        patch.setattr(negotiation_suppliers, "_client", client)  # theirs compares a virtual deadline with real time
        with _app(negotiation, receivers) as ground:
            ground.moves = lambda run: suppliers.bid(ground.app, run)
            ground.play(suppliers.purchase())
            yield ground


GROUNDS: Final[dict[str, Callable[[], AbstractContextManager[Ground]]]] = {
    "auction": lambda: _negotiation(0),
    "strategic": lambda: _negotiation(1),
    "desk": lambda: _desk({}),
    "desk-refused": lambda: _desk({desk_office.COMMENTS: acquisition_office.REFUSES}),
    "acquisition": lambda: _acquisition({}),
    "acquisition-refused": lambda: _acquisition(acquisition_office.MISBEHAVIOURS["refused-extras"]),
    "acquisition-undone": lambda: _acquisition(acquisition_office.MISBEHAVIOURS["refused-follow-up"]),
}
"""Ancestors: calm ones, ones whose writes a receiver refused, and one that failed and was undone."""


def sampled(offers: Sequence[Offer], n: int, seed: str) -> list[Offer]:
    """Return at most `n` of the checkpoints in their order, drawn by a seed; 0: all."""
    drawn = random.Random(seed).sample(range(len(offers)), min(n or len(offers), len(offers)))
    return [offers[k] for k in sorted(drawn)]


def main() -> int:
    """Walk the checkpoints, print a line for each walk, and return 1 if any went wrong."""
    cli = argparse.ArgumentParser(prog="tests.examples.forks", description=__doc__)
    cli.add_argument("--example", choices=GROUNDS, action="append", help="ancestor that is forked [all]")
    cli.add_argument("--effects", choices=MODES, action="append", help="mode of the forks [all]")
    cli.add_argument("--points", type=int, default=0, help="checkpoints in a walk, 0 for all [0]")
    given = cli.parse_args()
    bad = walks = 0
    for name, effects in itertools.product(given.example or GROUNDS, given.effects or MODES):
        with GROUNDS[name]() as ground:
            w = walk(ground, effects, sampled(ground.offers(), given.points, name))
        bad, walks = bad + bool(w.wrong), walks + 1
        click.echo(
            f"{name}, {effects}: {w.forks} forks, {w.ended} ended, {w.decided} decisions, "
            f"{w.reads} reads and {w.writes} writes sent: {'; '.join(w.wrong) or 'as the mode says'}"
        )
    click.echo(f"{bad} of {walks} walks wrong")
    return 1 if bad or unmeasured(walks=walks) else 0


if __name__ == "__main__":
    sys.exit(main())
