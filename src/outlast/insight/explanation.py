"""Explanation of a run's present state in one sentence, computed from its rows alone (RUN-9)."""

from collections.abc import Sequence

from outlast.core.approvals import approved_instead
from outlast.core.attention import raise_command
from outlast.core.budget import budget_text
from outlast.core.business_days import Due
from outlast.core.children import CHILD_KIND
from outlast.core.compensation import owed, undone
from outlast.core.effect_steps import LOCAL_LIMIT
from outlast.core.lanes import OWN
from outlast.core.machine import (
    RULES,
    TERMINAL,
    ApprovalStatus,
    Choice,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    WaitStatus,
)
from outlast.core.maps import waited_map
from outlast.core.route import ENGINE, Answer, EndCancelled, EndFailed, Rest, Route, route
from outlast.core.rows.effect_rows import Approval, Effect, Wait
from outlast.core.rows.limit_rows import Slot
from outlast.core.rows.run_columns import Attention, Ending, WaitingFor, until_of
from outlast.core.rows.run_rows import Floor, Run, is_over
from outlast.core.rows.store_rows import Worker
from outlast.core.usage import NO_LIMITS
from outlast.core.window import remaining
from outlast.engine.known_pauses import BREAKER, resume_command
from outlast.flow.context import SLEEP
from outlast.insight.answer_schemas import returns_text
from outlast.insight.attention_reads import ChoiceCommand, choice_commands
from outlast.insight.labels import blocked_ms, failed_child_text, is_held, late_answer_label, map_text, visit_text
from outlast.insight.row_models import FAILED_MAX, failed_alone, failed_child, late_evidence
from outlast.insight.run_facts import (
    ExplanationPart,
    RunFacts,
    blocked_text,
    clock_step_text,
    first_line,
    group_text,
    scheduler_text,
    start_one,
    start_worker,
    taker_text,
)
from outlast.models.runs import RunExplanation

NO_PLACE = (
    "its worker had no connection, descriptor or thread free for the call, because a limit of the client or of the "
    "process is below the worker's concurrency: raise it, or start the worker with a smaller --concurrency"
)
DECIDED = {
    ApprovalStatus.APPROVED: ApprovalStatus.APPROVED.value,
    ApprovalStatus.REJECTED: ApprovalStatus.REJECTED.value,
    ApprovalStatus.AGAIN: f"{ApprovalStatus.REJECTED.value}, with another round,",
}


def waiting_part(rows: RunFacts) -> ExplanationPart:
    """Explain every wait of the run in one clause, or which worker takes it once it is due."""
    waits = rows.run.waiting_for
    if rows.is_due() and not any(w.kind == "worker" for w in waits):
        return _due(rows, waits)
    if not waits:
        return ExplanationPart(f"waits for a worker; {taker_text(rows)}", "a worker takes it", start_one(rows))
    parts = [_one(rows, wait) for wait in waits if wait.kind != "child"]
    if awaited := [wait for wait in waits if wait.kind == "child"]:
        parts.append(_children(rows, awaited))
    return ExplanationPart(
        clause=" and ".join(part.clause for part in parts),
        next=" · ".join(dict.fromkeys(part.next for part in parts)),
        unblock=tuple(command for part in parts for command in part.unblock),
        since=min((part.since for part in parts if part.since), default=0),
        until=min((part.until for part in parts if part.until), default=0),
        facts=tuple(fact for part in parts for fact in part.facts),
    )


def _due(rows: RunFacts, waits: tuple[WaitingFor, ...]) -> ExplanationPart:
    """Explain a due run that no worker has taken yet by the event that made it due."""
    decided = [a for w in waits if w.kind == "approval" and (a := _approval(rows, w)) and a.status in DECIDED]
    over = [w for w in waits if 0 < w.until <= rows.now.business]
    late = rows.ago_real(rows.run.due_at or 0)
    if decided:
        a = decided[0]
        what = f"{a.id} was {DECIDED[a.status]} by {a.decided_by} {rows.ago(a.decided_at)} ago"
    elif over:
        what = f"its {over[0].kind} {over[0].what} ended {rows.ago(over[0].until)} ago"
    elif rows.messages and rows.messages[-1].kind == "signal":
        message = rows.messages[-1]
        what = f"the signal {message.name} arrived {rows.ago(message.at)} ago"
    elif rows.messages and rows.messages[-1].kind == CHILD_KIND:
        what = f"its child {rows.messages[-1].name} ended {rows.ago(rows.messages[-1].at)} ago"
    else:
        what = f"it has been due for {late}"
    return ExplanationPart(
        f"continues: {what}; {taker_text(rows)}", "the node runs again from its first line", start_one(rows)
    )


def _approval(rows: RunFacts, wait: WaitingFor) -> Approval | None:
    name = wait.what.partition(" ")[0]
    return next((a for a in rows.approvals if a.id == name), None)


def _one(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    match wait.kind:
        case "worker":
            return _worker(rows, wait)
        case "slot":
            return _slot(rows, wait)
        case "timer":
            named = "" if wait.what == SLEEP else f" ({wait.what})"
            due = row.due if (row := _wait_row(rows, wait)) is not None else None
            return _timed(rows, wait, f"sleeps{named} {_lasts(rows, wait.until, due)}", due=due)
        case "signal":
            return _signal(rows, wait)
        case "approval":
            return _decision(rows, wait)
        case "retry":
            clause = f"waits for {wait.what} ({wait.who}), {rows.lasts(wait.until)}"
            if wait.who == LOCAL_LIMIT:
                return _timed(rows, wait, f"{clause}; {NO_PLACE}", "outlast worker --concurrency N")
            return _timed(rows, wait, clause)
        case "settle":
            left = rows.left(wait.until)
            clause = f"waits another {left}, until a sent call can no longer arrive, to learn {wait.what}"
            return _timed(rows, wait, clause)
        case "pause":
            return _paused(rows, wait)
        case "effect":
            return _shared(rows, wait)
        case "budget":
            clause = f"waits for the budget of {wait.who}, whose tree has used up its {' and '.join(wait.what.split())}"
            return _timed(rows, wait, clause, raise_command(wait.who, wait.what))
    return _timed(rows, wait, f"waits for {wait.kind} {wait.what}")


def _timed(rows: RunFacts, wait: WaitingFor, clause: str, *unblock: str, due: Due | None = None) -> ExplanationPart:
    following = f"{rows.ahead(wait.until)} it {wait.then}" if wait.until else "it waits without a limit"
    return ExplanationPart(clause, following, unblock, wait.since, wait.until, _due_facts(due))


def _lasts(rows: RunFacts, until: int, due: Due | None) -> str:
    """Return how long a wait lasts, with the date if it is the end of business days."""
    return f"{rows.lasts(until)}, until {due.when}" if due is not None else rows.lasts(until)


def _due_facts(due: Due | None) -> tuple[tuple[str, str], ...]:
    return (("due", str(due)),) if due is not None else ()


def _worker(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    clause = f"has been queued for {rows.ago(wait.since)}; {taker_text(rows)}"
    then = next((each.id for each in rows.takers()), f"a worker that serves {rows.run.lane}")
    return ExplanationPart(clause, f"{then} runs node {rows.run.node}", start_one(rows), since=wait.since)


def _slot(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    tenants = dict.fromkeys(s.tenant for s in rows.slots)
    holders = " and ".join(_taken(tenant, [s for s in rows.slots if s.tenant == tenant]) for tenant in tenants)
    clause = f"has been queued for a slot for {rows.ago(wait.since)}" + (f"; {holders}" if holders else "")
    return ExplanationPart(
        clause, f"it {wait.then}, when a run that holds a slot ends", ("outlast runs ls",), wait.since
    )


def _taken(tenant: str, slots: list[Slot]) -> str:
    limit_text = f"of tenant {tenant}" if tenant != "*" else "of all tenants"
    return f"{sum(1 for s in slots if s.holder)} of {len(slots)} slots {limit_text} are taken"


def _signal(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    row = _wait_row(rows, wait)
    due = row.due if row is not None else None
    left = _lasts(rows, wait.until, due) if wait.until else "without a deadline"
    send = f"outlast signal {rows.run.run} {wait.what} --data '{{…}}'"
    spent = {n for w in rows.waits if w.status is WaitStatus.BOUND for n in w.binding or ()}
    came = [n for n in rows.messages if n.kind == "signal" and n.name == wait.what and n.n not in spent]
    if row is None or row.kind != "collect":
        unfit = f"; {len(came)} arrived with data of another type" if came else ""
        return _timed(rows, wait, f"waits for the signal {wait.what}, {left}{unfit}", send, due=due)
    of = f"{len(came)} of {row.most}" if row.most else f"{len(came)}"
    clause = f"has {of} signals {wait.what} and waits for more, {left}"
    return _timed(rows, wait, clause, send, due=due)


def _children(rows: RunFacts, waits: Sequence[WaitingFor]) -> ExplanationPart:
    """Explain a wait for children by the run of the tree that holds it up, with the commands that answer it.

    Of a map, the counts are said.
    """
    of_map = next((wait for wait in waits if waited_map(wait)), None)
    several = f"{len(waits)} children, " if len(waits) > 1 else ""
    since, then = min(wait.since for wait in waits), waits[0].then
    if rows.below is None:
        if of_map is not None:
            listed = f"outlast runs ls --parent {rows.run.run}"
            return ExplanationPart(f"waits for the map {of_map.what}", f"it {of_map.then}", (listed,), since)
        what = f"waits for {several or 'child '}{waits[0].what} ({waits[0].who})"
        return ExplanationPart(what, f"it {then}", (f"outlast explain {waits[0].who}",), since)
    path, inner = rows.below.path, explain(rows.below.facts)
    first = next((wait for wait in waits if wait.who == path[0]), of_map or waits[0])
    among = f"{several}among them {first.what}" if several else f"child {first.what}"
    if first is of_map:
        among = f"the map {first.what}"
    through = f", through {' → '.join(path[:-1])}" if len(path) > 1 else ""
    return ExplanationPart(
        clause=f"waits for {among}{through}: {inner.sentence.removesuffix('.')}",
        next=f"in {path[-1]}: {inner.next}; when its child has ended, {rows.run.run} {first.then}",
        unblock=(*inner.unblock, f"outlast explain {path[-1]}"),
        since=since,
        facts=(("path", " → ".join((rows.run.run, *path))),),
    )


def _wait_row(rows: RunFacts, wait: WaitingFor) -> Wait | None:
    mine = (w for w in rows.waits if w.name == wait.what and w.visit == rows.run.visit)
    return next((w for w in mine if w.since == wait.since), None)


def _decision(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    name = wait.what.partition(" ")[0]
    commands = [f"outlast approvals approve {name} --reason …", f"outlast approvals reject {name} --reason …"]
    row = _approval(rows, wait)
    due = row.calendar.due if row is not None else None
    clause = f"waits for {wait.who} to decide {wait.what}, {_lasts(rows, wait.until, due)}"
    facts = _due_facts(due)
    if row is not None:
        changed = approved_instead(row)
        facts = (("asks for", changed or ", ".join(f"{p.activity} {p.key}" for p in row.plans[:1])), *facts)
        if row.again:
            commands.append(f"outlast approvals reject {name} --again --reason …")
    then = f"{rows.ahead(wait.until)} an operator is called ({wait.then}); nothing is approved by waiting"
    return ExplanationPart(clause, then, tuple(commands), wait.since, wait.until, facts)


def _paused(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    key, _, reason = wait.what.partition(": ")
    up = next((h for h in rows.pauses if h.key == key), None)
    reason_text = f" ({reason})" if reason else ""
    if up is None:
        clause = f"continues: the pause of {key.replace('/', ' ')} has ended; {taker_text(rows)}"
        return ExplanationPart(clause, "a worker looks again within a minute", start_one(rows))
    if up.kind == BREAKER:
        again = f"one run tries it in {rows.left_real(up.again_at)}" if up.again_at > rows.now.real else ""
        clause = f"waits for {key.replace('/', ' ')}, which has been unavailable for {rows.ago(up.since)}{reason_text}"
        return ExplanationPart(clause, again or "one run tries it now", _ways_of(key), up.since, wait.until)
    clause = f"waits because {up.by} paused {key.replace('/', ' ')} {rows.ago(up.since)} ago{reason_text}"
    return ExplanationPart(clause, f"it {wait.then}", (resume_command(key),), up.since)


def _ways_of(key: str) -> tuple[str, ...]:
    """Return commands for a circuit breaker: close it at once, or turn it into a pause that only a person ends."""
    name = key.replace("/", " ")
    return (f"outlast resume {name}", f"outlast pause {name} --reason …")


def _shared(rows: RunFacts, wait: WaitingFor) -> ExplanationPart:
    owner = wait.who.removeprefix("run ")
    clause = f"waits for {wait.what}, which {wait.who} is executing and will settle"
    return ExplanationPart(clause, "it uses the recorded answer", (f"outlast explain {owner}",), wait.since)


_ENDS = {RunStatus.FAILED: "fails", RunStatus.CANCELLED: f"is {RunStatus.CANCELLED.value}"}


def undo_progress(run: Run, effects: Sequence[Effect]) -> str:
    """Return how many effects are undone, and of how many."""
    gone = len(undone(run, effects))
    return f"{gone} of {gone + len(owed(run, effects))} undone"


def undoing_part(rows: RunFacts, inner: ExplanationPart | None) -> ExplanationPart:
    """Explain a run that undoes its effects. `inner`: its wait; None while a worker holds it or once it is due."""
    run = rows.run
    ending = run.ending
    assert ending is not None
    done = undo_progress(run, rows.effects)
    left = ", ".join(f"{e.activity} {e.key}" for e in owed(run, rows.effects))
    facts = (("ends", run_ends(ending)), ("undo", done), *((("to undo", left),) if left else ()))
    first = f"undoes its effects before it {_ENDS[ending.outcome]} ({first_line(ending.reason)}; {done})"
    if inner is not None:
        return inner._replace(clause=f"{first}; it {inner.clause}", facts=(*inner.facts, *facts))
    who = f"{run.owner} holds it" if is_held(run) else taker_text(rows)
    unblock = () if is_held(run) else start_one(rows)
    return ExplanationPart(
        f"{first}; {who}", "the remaining effects are undone, latest first, then it ends", unblock, facts=facts
    )


def run_ends(ending: Ending) -> str:
    """Return the outcome of the run, and who decided it."""
    return f"{ending.outcome.value}" + (f", decided by {ending.by}" if ending.by else "")


BLOCKING = "write a call that blocks as an activity with def, which runs in a thread, or await it"
OPEN = (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)


def _is_open_call(effect: Effect) -> bool:
    """True if an outcome is to come from a receiver, not from a child run."""
    return effect.status is EffectStatus.INTENDED and not effect.child_text


def explain(rows: RunFacts) -> RunExplanation:
    """Explain where the run is, why and since when, who holds it, and its next step."""
    run = rows.run
    part = _part(rows)
    tripped = () if is_over(run) else _overlays(rows)
    clause = part.clause
    unblock = list(part.unblock)
    stops = any(a.stops for a in run.attention)
    for entry in tripped:
        clause = f"{_overlay_text(rows, entry)}{'; it' if stops else ' and continues: it'} {clause}"
        unblock += [way.command for way in _commands(rows, entry)]
    facts = [("objective", run.objective)] if run.objective else []
    facts += [
        ("node", visit_text(run.node, rows.history.nth_visit(run.visit), run.visit)),
        ("held by", run.owner if is_held(run) else "no worker"),
    ]
    facts += lineage_facts(rows)
    if scheduler := scheduler_text(rows):
        facts.append(("scheduler", scheduler))
    if not is_over(run) and (group := group_text(run)):
        facts.append(("group", group))
    if clock := clock_step_text(rows.clock_step):
        facts.append(("this machine's clock", clock))
    if rows.results:
        facts.append(("results", f"{rows.results:,}"))
    if rows.floor is not None:
        facts.append(("history", window_text(rows.floor)))
    if rows.maps:
        facts.append(("maps", "; ".join(map_text(each) for each in rows.maps)))
    if failed := failed_alone(rows.effects):
        shown = [failed_child_text(failed_child(call)) for call in failed[:FAILED_MAX]]
        more = [f"and {len(failed) - FAILED_MAX} more"] if len(failed) > FAILED_MAX else []
        facts.append(("failed children", "; ".join([*shown, *more])))
    of_tree = rows.tree_amounts
    if spent := budget_text(rows.amounts, rows.allowed if of_tree is None else NO_LIMITS):
        facts.append(("used", spent))
    if of_tree is not None and (spent := budget_text(of_tree, rows.allowed)):
        facts.append(("used by its tree", spent))
    if part.since:
        facts.append(("since", rows.instant(part.since)))
    if part.until:
        facts.append(("until", rows.instant(part.until)))
    if rows.ceiling is not None:
        facts.append(("ceiling", str(rows.ceiling)))
    return RunExplanation(
        sentence=f"{run.run} {clause}.",
        facts=dict([*facts, *part.facts]),
        next=part.next,
        unblock=list(dict.fromkeys(unblock)),
        results=rows.results,
    )


def lineage_facts(rows: RunFacts) -> list[tuple[str, str]]:
    """Return the parent of the run, its ancestor if it is a fork, and the forks that were started before its end."""
    run, facts = rows.run, list[tuple[str, str]]()
    if run.parent:
        parent = run.parent if run.root == run.parent else f"{run.parent} (root {run.root})"
        facts.append(("child of", parent + ("; detached: it goes on alone" if rows.detached else "")))
    if run.forked_from:
        at = f" at checkpoint {rows.fork.seq}" if rows.fork is not None else ""
        why = rows.fork.both_go_on if rows.fork is not None else ""
        both = f", which had not ended and goes on, too: {why}" if why else ""
        facts.append(("fork of", f"{run.forked_from}{at}{both}"))
    if rows.fork_notes:
        named = [f"{note.fork} by {note.by} at checkpoint {note.seq}: {note.reason}" for note in rows.fork_notes[-5:]]
        more = [f"{len(rows.fork_notes) - 5} earlier ones"] if len(rows.fork_notes) > 5 else []
        facts.append(("forks that go on, too", "; ".join([*named, *more])))
    return facts


def _route(rows: RunFacts) -> Route:
    return route(rows.run, rows.messages, _ledger(rows), rows.now.business, served=bool(rows.takers()))


def _overlays(rows: RunFacts) -> tuple[Attention, ...]:
    """Return the unanswered reasons that do not stop the run."""
    way = _route(rows)
    left = () if isinstance(way, EndCancelled | EndFailed) else way.left
    return tuple(a for a in left if not a.stops)


def _ledger(rows: RunFacts) -> dict[tuple[int, str], Effect]:
    return {(e.visit, e.key): e for e in rows.effects}


def _part(rows: RunFacts) -> ExplanationPart:
    if is_over(rows.run):
        return _over(rows)
    way = _route(rows)
    if rows.run.ending:
        return undoing_part(rows, _obstacle(rows, way))
    if isinstance(way, EndCancelled | EndFailed):
        return _to_end(rows, way)
    if isinstance(way, Rest):
        return _needs_person(rows, tuple(a for a in way.left if a.stops))
    if is_held(rows.run):
        return _executing(rows)
    if way.answers:
        return _answered(rows, way.answers)
    return waiting_part(rows)


def _obstacle(rows: RunFacts, way: Route) -> ExplanationPart | None:
    """Return the part that explains why an undoing run does not proceed now, or None."""
    if isinstance(way, Rest):
        return _needs_person(rows, tuple(a for a in way.left if a.stops))
    if is_held(rows.run):
        return _executing(rows)
    return None if rows.is_due() else waiting_part(rows)


def window_text(floor: Floor) -> str:
    """Return where the history of a run begins, and how many calls before it stay in force."""
    kept = "; ".join(remaining(floor.purged))
    return f"before visit {floor.visit:,} it was purged" + (f"; in force: {kept}" if kept else "")


# --- ended -----------------------------------------------------------------------------------------
_ENDED = {
    RunStatus.COMPLETED: RunStatus.COMPLETED.value,
    RunStatus.FAILED: RunStatus.FAILED.value,
    RunStatus.CANCELLED: f"was {RunStatus.CANCELLED.value}",
}
assert set(_ENDED) == set(TERMINAL)


def _over(rows: RunFacts) -> ExplanationPart:
    run = rows.run
    end = rows.history.end
    reason, left = (first_line(end.reason), end.not_undone) if end is not None else ("", ())
    reason_text = f": {reason}" if reason else ""
    for by in ("cancelled by ", "failed by "):
        if reason.startswith(by):
            reason_text = f" by {reason.removeprefix(by)}"
    label = f" as {run.status_label}" if run.status_label and run.status is RunStatus.COMPLETED else ""
    clause = f"{_ENDED[run.status]}{label} {rows.ago(run.ended_at)} ago{reason_text}"
    if left:
        clause += f"; {_count(len(left), 'effect')} {'was' if len(left) == 1 else 'were'} not undone"
    unblock = ("undo these effects by hand if necessary",) if left else ()
    facts = [("not undone", ", ".join(left))] if left else []
    if rows.ledger_purged:
        facts.append(("effects", "deleted, because the retention of the ledger is over"))
    return ExplanationPart(
        clause, "nothing: an ended run does not change", unblock, since=run.ended_at, facts=tuple(facts)
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


# --- requested to end --------------------------------------------------------------------------------
def _to_end(rows: RunFacts, way: EndCancelled | EndFailed) -> ExplanationPart:
    run = rows.run
    message = next((n for n in rows.messages if n.kind in ("cancel", "answer") and n.actor == way.by), None)
    since = message.at if message is not None else 0
    if way.by == ENGINE:
        asked = f"is to be cancelled ({way.reason})"
    else:
        when = f" {rows.ago(since)} ago" if since else ""
        asked = f"was asked to end by {way.by}{when} ({way.reason})"
    open_ = [e for e in rows.effects if e.status in OPEN and not e.child_text]
    facts = (("open effects", ", ".join(f"{e.activity} {e.key}" for e in open_)),) if open_ else ()
    if is_held(run):
        clause = f"{asked}; {run.owner} stops it before its next call"
        return ExplanationPart(clause, "its open effects are settled, then it ends", since=since, facts=facts)
    if rows.is_due():
        clause = f"{asked}; {taker_text(rows)}"
        return ExplanationPart(
            clause, "its open effects are settled, then it ends", start_one(rows), since=since, facts=facts
        )
    stopping = tuple(a for a in run.attention if a.stops)
    inner = _needs_person(rows, stopping) if stopping else waiting_part(rows)
    return inner._replace(clause=f"{asked} and first {inner.clause}", since=since, facts=facts)


# --- a person --------------------------------------------------------------------------------------
def _needs_person(rows: RunFacts, entries: tuple[Attention, ...]) -> ExplanationPart:
    sentences = [_why(rows, entry) for entry in entries]
    untils = [u for entry in entries if (u := until_of(entry))]
    commands = tuple(way.command for entry in entries for way in _commands(rows, entry) if _is_open(rows, entry, way))
    ignored = " · ".join(dict.fromkeys(RULES[entry.reason].if_ignored for entry in entries))
    return ExplanationPart(
        f"needs a person: {'; and '.join(sentences)}",
        f"if ignored: {ignored}",
        commands,
        since=min(entry.since for entry in entries),
        until=min(untils, default=0),
        facts=(
            ("reasons", ", ".join(dict.fromkeys(entry.reason.value for entry in entries))),
            *((f"if answered {choice}", text) for choice, text in _consequences(rows, entries)),
            *_open_facts(rows),
        ),
    )


def _consequences(rows: RunFacts, entries: Sequence[Attention]) -> list[tuple[str, str]]:
    """Return the consequence of each choice; of several reasons, all that the same choice has."""
    found = dict[str, list[str]]()
    for way in (way for entry in entries for way in _commands(rows, entry)):
        found.setdefault(way.choice.value, []).append(way.consequence)
    return [(choice, "; or ".join(dict.fromkeys(texts))) for choice, texts in found.items()]


def _open_facts(rows: RunFacts) -> tuple[tuple[str, str], ...]:
    """Return open effects that no worker executes and that no person is asked about."""
    open_ = [f"{e.activity} {e.key}" for e in rows.effects if _is_open_call(e)]
    return (("open effects", ", ".join(open_)),) if open_ and not is_held(rows.run) else ()


def _commands(rows: RunFacts, entry: Attention) -> tuple[ChoiceCommand, ...]:
    effect = _ledger(rows).get((entry.visit, entry.key))
    taking = effect is not None and bool(returns_text(rows.answer_schemas.get(effect.activity)))
    return choice_commands(rows.run, entry, takes_response=taking)


def _is_open(rows: RunFacts, entry: Attention, way: ChoiceCommand) -> bool:
    """Return True if the choice is accepted now. "Did not happen" is accepted once no sent call can still arrive."""
    effect = _ledger(rows).get((entry.visit, entry.key))
    return way.choice is not Choice.DID_NOT_HAPPEN or effect is None or effect.settle_after <= rows.now.real


def _why(rows: RunFacts, entry: Attention) -> str:
    """Return the clause of a reason: its sentence with the facts of this entry."""
    effect = _ledger(rows).get((entry.visit, entry.key))
    until = effect.settle_after if effect is not None else 0
    late = [e for e in rows.evidence if (e.visit, e.key) == (entry.visit, entry.key)]
    clause = RULES[entry.reason].sentence.format(
        detail=first_line(entry.detail),
        call=f"{effect.activity} {effect.key}" if effect is not None else entry.key,
        node=rows.run.node,
        trigger=entry.trigger or entry.reason.value,
        ago=rows.ago(entry.since),
        end=rows.ahead(until_of(entry)),
        accepted=f"in {rows.left_real(until)}" if until > rows.now.real else "now",
        late="".join(f"; {late_answer_label(late_evidence(each))}" for each in late),
    )
    return clause or entry.reason.value


def _overlay_text(rows: RunFacts, entry: Attention) -> str:
    """Return the clause of a reason that does not stop the run, with the run as its subject."""
    why = _why(rows, entry)
    return f"needs a person ({why})" if entry.reason is Reason.BUDGET_EXHAUSTED else why


def _answered(rows: RunFacts, answers: tuple[Answer, ...]) -> ExplanationPart:
    chosen = " and ".join(_chosen(answer) for answer in answers)
    by_itself = all(answer.by == ENGINE for answer in answers)
    clause = f"continues: {chosen}" if by_itself else f"continues with the answers of people ({chosen})"
    clause += f"; {taker_text(rows)}"
    return ExplanationPart(clause, "the node runs again from its first line, in the same visit", start_one(rows))


def _chosen(answer: Answer) -> str:
    if answer.attention.reason is Reason.EFFECT_UNCERTAIN:
        return f"{answer.attention.key} is settled by {answer.by}"
    if answer.by == ENGINE:
        return answer.text
    return f"{answer.choice.value} by {answer.by}"


# --- a worker --------------------------------------------------------------------------------------
def _executing(rows: RunFacts) -> ExplanationPart:
    run = rows.run
    taken = rows.history.last_claim
    since = taken.at if taken is not None else 0
    worker = next((w for w in rows.workers if w.id == run.owner), None)
    if worker is None or not worker.is_alive(rows.now.real):
        return _orphaned(rows, worker, since)
    facts = (
        ("lease", f"for another {rows.left_real(worker.lease_until)}, renewed while the worker lives"),
        ("execution", f"ends within {rows.left_real(run.due_at or 0)}"),
    )
    dies = f"if {run.owner} dies, another worker takes over when its lease expires"
    silent = rows.now.real - worker.renewed_at
    if blocked := blocked_ms(worker, rows.now):
        clause = f"is held by {run.owner} and continues when {blocked_text(blocked)}"
        then = f"if that lasts, the worker stops renewing its lease; {dies}"
        return ExplanationPart(clause, then, (BLOCKING, *start_one(rows)), since=since, facts=facts)
    if silent > (worker.lease_until - worker.renewed_at) // 2:
        clause = f"is held by {run.owner}, which has been silent for {rows.ago_real(worker.renewed_at)}"
        clause += f": takeover in {rows.left_real(worker.lease_until)} unless it renews its lease"
        return ExplanationPart(clause, dies, start_one(rows), since=since, facts=facts)
    ago = f", for {rows.ago(since)}" if since else ""
    if worker.health.draining:
        clause = f"is held by {run.owner}, which drains: it ends its call and gives the run back"
        return ExplanationPart(clause, "another worker continues it", start_one(rows), since=since, facts=facts)
    if run.status is RunStatus.RECOVERING:
        clause = f"is held by {run.owner}, which settles the calls its predecessor left open in node {run.node}{ago}"
    elif run.status is RunStatus.COMPENSATING:
        clause = f"is held by {run.owner}{ago}"
    else:
        clause = f"is running node {run.node} on {run.owner}{ago}"
    return ExplanationPart(clause, f"it continues by itself; {dies}", since=since, facts=facts)


def _orphaned(rows: RunFacts, worker: Worker | None, since: int) -> ExplanationPart:
    owner, takers = rows.run.owner, rows.takers()
    if worker is None:
        what = "which has no row"
    elif worker.status is LeaseStatus.CLOSED:
        what = "which has stopped"
    else:
        what = f"whose lease expired {rows.ago_real(worker.lease_until)} ago"
    if takers and rows.run.scheduler != OWN:
        clause = f"was held by {owner}, {what}; {takers[0].id} queues it now"
        return ExplanationPart(clause, f"{rows.run.scheduler} chooses a worker, which settles open calls first")
    if takers:
        return ExplanationPart(
            f"was held by {owner}, {what}; {takers[0].id} takes it over now", "open calls are settled first"
        )
    clause = f"was held by {owner}, {what}, and no live worker serves {rows.run.lane} to take it over"
    return ExplanationPart(
        clause, "a worker that serves this version takes it over", (start_worker(rows),), since=since
    )
