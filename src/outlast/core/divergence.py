"""Decision whether an execution of a node asks for what earlier executions of its visit recorded (EFF-9, S-27).

A node is executed again after each wait, crash and deploy. If a key is made of a clock, a counter or a model's text,
the next execution asks for another key, and the ledger has no answer for it. A new call is therefore *held* while a
recorded call of the same activity has not been asked for: either the body asks for it in this turn or a later one, or
the body can go no further and a person is asked. Nothing is sent in between, because nothing is decided for a held
call: no policy, approval, budget, seat or intent.

Each recorded thing has a name: `activity?key` of a call, `?wait?name`, `?approval?name`. An execution asks for these.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from outlast.core.commit import Instant
from outlast.core.effect_verbs import UNANSWERED, USED_HERE
from outlast.core.enough import ENDED_EARLY, names_of_set
from outlast.core.keys import MODEL
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import ApprovalStatus, Choice, EffectStatus, Reason, WaitStatus
from outlast.core.mailbox import is_reopened
from outlast.core.rows.effect_rows import Approval, Effect, Memo, Wait
from outlast.core.rows.run_rows import Message, Run

MAP: Final = "outlast.map"
"""Name, in place of an activity, of the maps of a node."""
DROPPED: Final = "outlast.dropped"
"""Name of the memo of a migration whose version does not make the recorded calls of some activities any more."""
SIGNAL: Final = "outlast.signal"
"""Name, in place of an activity, of the signals that a node sends to its children and its parent."""
NAMES_KEPT: Final = 50  # names that an entry of the attention set holds; the next execution asks about the others
NAMES_SHOWN: Final = 5
ARGUMENTS_SHOWN: Final = 200
REMEDY: Final = (
    "A key must be the same in each execution of a visit: make it of business identity, ctx.uuid(name), "
    "ctx.random(name), ctx.now(), or of a lookup's answer for a model's text"
)
ACCEPT: Final = "To accept makes the new calls beside the recorded ones"
DECIDED: Final = (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN)
Missing = dict[str, set[str]]
"""Names that are recorded and not asked for yet, by activity; those of waits and approvals by ''."""


class HeldCall(NamedTuple):
    """New call that is not made, because a recorded call of its activity has not been asked for."""

    activity: str
    key: str
    args: bytes
    where: str
    """File and line of the author's code."""
    is_request: bool = False
    """It is a request for approval of the call."""


class Requested(NamedTuple):
    """Request for approval of an earlier execution, by the name that asks for it."""

    activity: str
    name: str
    is_decided: bool


def recorded(
    run: Run,
    effects: Collection[Effect],
    memos: Iterable[Memo],
    waits: Iterable[Wait],
    approvals: Iterable[Approval],
    paid: Callable[[str], bool],
    dropped: "Dropped",
) -> Iterator[str]:
    """Yield the names of what earlier executions of the current visit have recorded.

    `paid` tells whether a lookup of a name is durable. Undos and answers of free lookups do not count. An open effect
    that may have happened counts even if it was dropped.
    """
    visit = run.visit
    for effect in effects:
        open_ = not effect.settled_at
        first = effect.visit or effect.first_visit or (visit if open_ else 0)  # an open effect is of this visit (S-15)
        if first != visit or effect.undoes or effect.status is EffectStatus.UNDONE:
            continue
        if effect.child_text and effect.child.map:  # its map asks for it
            continue
        if (open_ and effect.settle_after) or not dropped.has(effect.activity, effect.ordinal <= dropped.ordinal):
            yield f"{effect.activity}?{effect.key}"
    for memo in memos:
        if dropped.has(memo.activity, memo.at <= dropped.at):
            continue
        if memo.activity == SIGNAL:
            _, to, _ = memo.key.split("?", 2)
            to_child = any(to == each.external_id for each in effects if not is_reopened(each))
            if _of_this_visit(run, memo) and (to_child or to == run.parent):
                yield signal_name(memo.key)
        elif memo.activity == MAP:
            if memo.digest and memo.visit == visit:
                yield f"{MAP}?{memo.key}"
        elif memo.visit == visit and memo.key.startswith(ENDED_EARLY):
            yield from names_of_set(memo)
        elif memo.visit == visit and memo.key.startswith(USED_HERE):
            yield f"{memo.activity}?{memo.key.removeprefix(USED_HERE)}"
        elif is_answer(memo) and _of_this_visit(run, memo) and (memo.activity == MODEL or paid(memo.activity)):
            yield f"{memo.activity}?{memo.key}"
    for wait in waits:
        if wait.visit == visit and not dropped.has("", wait.since <= dropped.at):
            yield f"?wait?{wait.key}"
    for approval in approvals:
        # the policy asks for its own while a call is made, not the body
        used = approval.visit == visit and approval.consumed_by and not approval.wait.startswith("policy/")
        if used and not dropped.has(approval.plans[0].activity, approval.asked_at <= dropped.at):
            yield f"?approval?{approval.wait}"


def signal_name(key: str) -> str:
    """Return the name of a signal to a child or the parent, by the key of its memo."""
    return f"{SIGNAL}?{key.partition('?')[2]}"


def is_answer(memo: Memo) -> bool:
    """True if a memo is the answer of a lookup."""
    return bool(memo.digest) and not memo.key.startswith(UNANSWERED)


def _of_this_visit(run: Run, memo: Memo) -> bool:
    """True for an answer of this visit. One per run counts if no earlier visit can have got it."""
    return memo.visit == run.visit or (memo.visit == 0 and (run.visit == 1 or memo.at > run.entered_at))


def requested(run: Run, approvals: Iterable[Approval], dropped: "Dropped") -> Iterator[Requested]:
    """Yield the requests for approval of the current visit that are decided or pending.

    A node may return without one that it has not used. But no approver is asked about another call of the activity
    before the body has asked for these. The policy requests for a call, so asking for the call asks for its request.
    """
    for approval in approvals:
        plan, wait = approval.plans[0], approval.wait
        if approval.visit != run.visit or dropped.has(plan.activity, approval.asked_at <= dropped.at):
            continue
        name = f"{plan.activity}?{plan.key}" if wait.startswith("policy/") else f"?approval?{wait}"
        if approval.status in DECIDED:
            yield Requested(plan.activity, name, is_decided=True)
        elif approval.status is ApprovalStatus.PENDING:
            yield Requested(plan.activity, name, is_decided=False)


def asks_again(left: Collection[Requested]) -> bool:
    """Return True if a further request would ask approvers again. `left`: requests that the body has not asked for.

    As for one name, the first replacement of a pending request is put to the approvers (`is_replaced_again`).
    """
    return len(left) > 1 or any(each.is_decided for each in left)


def waits_in_a_loop(
    run: Run, waits: Iterable[Wait], messages: Sequence[Message], left: Collection[str], asked: Collection[str]
) -> bool:
    """Return True if each execution of the visit waits under another name, so that the node would never return.

    `left`: recorded names that the body has not asked for. `asked`: names of the waits that it is in. The first wait
    that passes over an answered one may be new code. The second one was opened although the first was answered.
    """
    mine = [wait for wait in waits if wait.visit == run.visit and wait.status is WaitStatus.OPEN]
    before = [wait for wait in mine if f"?wait?{wait.key}" in left]
    for first in before:
        for second in before:
            if _passes_over(second, first, messages):
                return any(_passes_over(now, second, messages) for now in mine if f"wait?{now.key}" in asked)
    return False


def _passes_over(later: Wait, wait: Wait, messages: Sequence[Message]) -> bool:
    """Return True if a wait was opened after another one had its answer."""
    answers = [m.at for m in messages if m.kind == "signal" and m.name == wait.name and m.at >= wait.since]
    if wait.deadline:
        answers.append(wait.deadline)
    return later is not wait and bool(answers) and later.since >= min(answers)


class Dropped(NamedTuple):
    """Calls that moves of the run in this visit have dropped: of some activities, or all that were recorded before."""

    activities: frozenset[str] = frozenset()
    ordinal: int = 0  # effects up to this one were recorded before a person moved the run to another node
    at: int = 0  # business; of that move

    def has(self, activity: str, before: bool) -> bool:
        """True if what is recorded for an activity need not be asked for. `before`: it is older than the move."""
        return before or activity in self.activities


def drop_memo(run: Run, activities: Iterable[str], ordinal: int, now: Instant) -> Memo:
    """Return the row that says what a move drops. `ordinal` > 0: all effects up to it."""
    response = json.dumps({"activities": sorted(activities), "ordinal": ordinal}).encode()
    key = f"{DROPPED}?{run.version}"
    return Memo(run.tenant, run.run, run.visit, key, DROPPED, "", response, "", now.business)


def dropped_in(run: Run, memos: Iterable[Memo]) -> Dropped:
    """Return what the moves of the run in its current visit have dropped."""
    found = Dropped()
    for memo in memos:
        if memo.activity == DROPPED and memo.visit == run.visit and memo.response is not None:
            recorded = json.loads(memo.response)
            found = found._replace(activities=found.activities | set(recorded["activities"]))
            if recorded["ordinal"]:
                found = found._replace(ordinal=max(found.ordinal, recorded["ordinal"]), at=max(found.at, memo.at))
    return found


def accepted(run: Run, messages: Iterable[Message]) -> set[str]:
    """Return the names that a person accepted in this visit: they need not be asked for again."""
    return {name for visit, name, _ in _accepted(messages) if visit == run.visit}


def _accepted(messages: Iterable[Message]) -> set[tuple[int, str, str]]:
    answers = (m.answer for m in messages if m.kind == "answer" and m.name == Reason.NODE_DIVERGED)
    return {each for answer in answers if answer.choice is Choice.ACCEPT for each in answer.recorded}


def by_activity(names: Iterable[str]) -> Missing:
    """Return the names for which an execution must ask, by activity."""
    found: Missing = {}
    for name in names:
        found.setdefault(name.partition("?")[0], set()).add(name)
    return found


def in_order(names: Missing) -> tuple[str, ...]:
    """Return the missing names in a fixed order, as many as an entry of the attention set holds."""
    return tuple(sorted(name for group in names.values() for name in group))[:NAMES_KEPT]


def held_too_long(node: str, held: Sequence[HeldCall], names: Missing, path: str = "") -> str:
    """Return the text for a body that can go no further, because its new calls are held.

    `path`: why the body may take another path than before, from `reopened_in`.
    """
    first = held[0]
    given = first.args.decode(errors="replace")[:ARGUMENTS_SHOWN]
    more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
    left = _shown(names.get(first.activity, ()))
    what = "approval of " if first.is_request else ""
    text = (
        f"node {node} asks for other calls than an earlier execution of this visit, at {first.where}. "
        f"Nothing was sent. New: {what}{first.activity} {first.key}{more} with {given}. "
        f"Recorded, and not asked for: {left}. {path or REMEDY}. {ACCEPT}"
    )
    return text[:TEXT_CHARS_MAX]


def never_returns(node: str, left: Collection[str], where: str) -> str:
    """Return the text for a body that waits under another name in each execution."""
    text = (
        f"node {node} waits at {where} under another name each time, so it would never return. It did not ask for "
        f"what earlier executions of this visit waited for: {_shown(left)}. A wait must have the same name in each "
        "execution of a visit: make it of business identity, ctx.uuid(name), ctx.random(name) or ctx.now()"
    )
    return text[:TEXT_CHARS_MAX]


def not_asked_for(node: str, names: Missing, effects: Mapping[tuple[int, str], Effect], path: str = "") -> str:
    """Return the text for a body that returned without asking for what is recorded."""
    open_ = [e for e in effects.values() if not e.settled_at and f"{e.activity}?{e.key}" in names.get(e.activity, ())]
    unsettled = f"; not settled yet: {', '.join(f'{e.activity} {e.key}' for e in open_[:NAMES_SHOWN])}" if open_ else ""
    everything = [name for group in names.values() for name in group]
    text = (
        f"node {node} returned, but did not ask for what an earlier execution of this visit recorded: "
        f"{_shown(everything)}{unsettled}. {path or REMEDY}"
    )
    return text[:TEXT_CHARS_MAX]


def _shown(names: Collection[str]) -> str:
    shown = [name.replace("?", " ").strip() for name in sorted(names)[:NAMES_SHOWN]]
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(shown) + more


def reopened_in(run: Run, messages: Iterable[Message]) -> str:
    """Return which effect of the visit a person has reopened, as a sentence; '' if none."""
    for message in messages:
        if message.kind == "resolve" and message.payload:
            payload = json.loads(message.payload)
            if payload.get("verb") == "did_not_happen" and payload.get("visit") in (0, run.visit):
                return (
                    f"An operator answered that {payload['key']} did not happen, so the path of the node has changed: "
                    "accept this if it is right"
                )
    return ""


def continued_after(messages: Iterable[Message]) -> int:
    """Return the number of the last message with which a person let a run continue after an exception; 0 if none."""
    last = 0
    for message in messages:
        if message.name == Reason.EXCEPTION and (
            message.kind == Choice.CONTINUE or (message.kind == "answer" and message.answer.choice is Choice.CONTINUE)
        ):
            last = message.n
    return last


# --- approvals that are asked for again ------------------------------------------------------------
def is_replaced_again(asked: Sequence[Approval], latest: Approval) -> bool:
    """Return True if a request for other plans must go to an operator, not to the approvers once more.

    `asked`: requests of this name in the visit; `latest` is the last of them, for other plans than now. The first
    replacement of a pending request is put to the approvers. A decided request, or a second replacement, is a sign that
    the plans differ in each execution.
    """
    return latest.status in DECIDED or len({_digests(approval) for approval in asked}) > 1


def accepts(run: Run, messages: Iterable[Message], name: str, digest: str) -> bool:
    """Return True if a person accepted that this plan replaces the one before, in this visit."""
    return (run.visit, name, digest) in _accepted(messages)


def is_other_plan(approval: Approval, digests: Sequence[str]) -> bool:
    """True if a request offers other calls than these."""
    return _digests(approval) != tuple(digests)


def _digests(approval: Approval) -> tuple[str, ...]:
    return tuple(plan.digest for plan in approval.plans if plan.change is None)


def plans_differ(node: str, approval: Approval, key: str, arguments: str) -> str:
    """Return the text for a plan that differs from the one that approvers were asked about."""
    old = next(plan for plan in approval.plans if plan.change is None)
    decided = f"{approval.status} by {approval.decided_by}" if approval.decided_by else "replaced once already"
    text = (
        f"node {node} asks for approval of {key} with {arguments[:ARGUMENTS_SHOWN]}, but "
        f"{approval.id} is about {old.key} with {old.arguments_text[:ARGUMENTS_SHOWN]} and was {decided}. "
        f"First difference: {first_difference(old.arguments_text, arguments)}. "
        "A plan must be the same in each execution of a visit: take a model's text from a lookup"
    )
    return text[:TEXT_CHARS_MAX]


def first_difference(old: str, new: str) -> str:
    """Return the first argument that differs in two JSON objects, with both values."""
    before, after = json.loads(old), json.loads(new)
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name) or (name in before) != (name in after):
            values = [json.dumps(v, ensure_ascii=False)[:ARGUMENTS_SHOWN] for v in (before.get(name), after.get(name))]
            return f"{name} was {values[0]} and is {values[1]}"
    return "the key"
