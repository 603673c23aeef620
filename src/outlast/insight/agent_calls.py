"""Requests to models by prompt, and calls by tool: counts of the newest rows of a tenant."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from outlast.core.distributions import percentile
from outlast.core.durations import DAY
from outlast.core.lanes import version_in, workflow_in
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.text_rows import MODEL_TEXT, StoredModelText
from outlast.core.usage import TOOLS, day_of, money_text
from outlast.errors import Corrupt, NotFound
from outlast.insight.tenant_rows import TenantRows
from outlast.models import exact_instant, instant
from outlast.models.agents import DifferenceLine, PromptDetail, PromptList, PromptUse, ToolList, ToolUse
from outlast.store.agent_calls import (
    AskedRequest,
    CountedCall,
    NewestCalls,
    NewestRequests,
    NewestVerdicts,
    RecordedVerdict,
)
from outlast.telemetry.redact import redacted

UNUSABLE: Final = frozenset({"cut", "filtered", "refusal", "too_large", "empty", "declined"})
"""Ends of answers; another outcome is the name of an error."""
HEAD_CHARS: Final = 160
HEADS_MAX: Final = 50
"""Prompts whose beginning a list shows."""
AROUND: Final = 3
"""Equal lines of a difference before and after a changed one."""
LINES_MAX: Final = 2_000
"""Lines of a text that are compared."""
REJECTED_MAX: Final = 1_000
OFFERS: Final = "policy/offer/"
DAYS: Final = 90


# --- requests to models ---------------------------------------------------------------------------------
class _Group(NamedTuple):
    """Requests that a line of the list counts."""

    lane: str
    prompt: str
    tools: str
    model: str


def prompt_uses(requests: Iterable[AskedRequest], heads: dict[str, str]) -> list[PromptUse]:
    """Return a line for each version of a workflow, prompt, tools and model: by workflow, the latest first."""
    groups: dict[_Group, list[AskedRequest]] = {}
    for each in requests:
        groups.setdefault(_Group(each.lane, each.prompt, each.tools, each.model), []).append(each)
    uses = [_use(group, found, heads.get(group.prompt, "")) for group, found in groups.items()]
    uses.sort(key=lambda use: (-use.last.timestamp(), use.prompt, use.model))
    order = {use.workflow: n for n, use in reversed([*enumerate(uses)])}
    return sorted(uses, key=lambda use: (order[use.workflow], -use.version))


def _use(group: _Group, found: Sequence[AskedRequest], head: str) -> PromptUse:
    last, first = max(found, key=lambda each: each.at), min(found, key=lambda each: each.at)
    outcomes = Counter(each.outcome for each in found if each.outcome)
    unusable = sum(n for outcome, n in outcomes.items() if outcome in UNUSABLE)
    p50, p95 = _percentiles(each.ms for each in found if each.ms and (not each.outcome or each.outcome in UNUSABLE))
    return PromptUse(
        prompt=group.prompt,
        tools=group.tools,
        head=head,
        model=group.model,
        workflow=workflow_in(group.lane),
        version=version_in(group.lane),
        first=exact_instant(first.at),
        last=exact_instant(last.at),
        requests=len(found),
        unusable=unusable,
        errors=outcomes.total() - unusable,
        outcomes=dict(outcomes.most_common()),
        tokens=sum(each.tokens for each in found),
        input_tokens=sum(each.input_tokens for each in found),
        output_tokens=sum(each.output_tokens for each in found),
        money=money_text(sum(each.money for each in found)),
        unpriced=sum(each.unpriced for each in found),
        p50_ms=p50,
        p95_ms=p95,
        run=last.run,
    )


def _percentiles(times: Iterable[int]) -> tuple[int | None, int | None]:
    """Return the median and the 95th percentile of times; None without any."""
    ordered = sorted(times)
    return (percentile(ordered, 50), percentile(ordered, 95)) if ordered else (None, None)


async def prompt_list(of: TenantRows, *, workflow: str, model: str, days: int) -> PromptList:
    """Return the requests of the last business days by prompt, at most the newest ones."""
    requests, since, every = await _requests(of, days)
    kept = [each for each in requests if workflow in ("", workflow_in(each.lane)) and model in ("", each.model)]
    prompts = [*dict.fromkeys(each.prompt for each in kept if each.prompt)][:HEADS_MAX]
    texts = await _texts(of, prompts)
    heads = {digest: " ".join(shown_text(row).split())[:HEAD_CHARS] for digest, row in texts.items()}
    return PromptList(uses=prompt_uses(kept, heads), read=len(kept), every=every, since=exact_instant(since))


async def _requests(of: TenantRows, days: int) -> tuple[tuple[AskedRequest, ...], int, bool]:
    today = day_of((await of.store.now()).business)
    query = NewestRequests(of.tenant, today - days + 1, today)
    found = await of.store.query(query)
    every = len(found) < query.most
    return found, query.since * DAY if every or not found else found[-1].at, every


async def _texts(of: TenantRows, digests: Sequence[str]) -> dict[str, StoredModelText]:
    keys: list[Key] = [(of.tenant, digest) for digest in digests]
    return {row.digest: row for row in await of.store.load_many(MODEL_TEXT, keys) if row is not None}


async def stored_text(of: TenantRows, digest: str) -> str:
    """Return the instructions or tools with a digest as people may see them; '' if they are not stored."""
    row = (await _texts(of, [digest])).get(digest) if digest else None
    return shown_text(row) if row is not None else ""


def shown_text(row: StoredModelText) -> str:
    """Return a text as people may see it: tools as lines of JSON, without secrets."""
    if row.kind == TOOLS:
        try:
            return json.dumps(redacted(json.loads(row.text)), indent=1, ensure_ascii=False)
        except ValueError:  # only its beginning is stored
            pass
    return str(redacted(row.text))


# --- one text ---------------------------------------------------------------------------------------------
async def prompt_detail(of: TenantRows, digest: str, workflow: str) -> PromptDetail:
    """Return a text with its difference to the previous one of a workflow. Raises NotFound."""
    requests, _, every = await _requests(of, DAYS)
    mine = [each for each in requests if digest in (each.prompt, each.tools)]
    row = (await _texts(of, [digest])).get(digest)
    if not digest or (row is None and not mine):
        fix = "list them: outlast prompts ls"
        raise NotFound(f"no instructions or tools {digest}"[:200], "no counted request has this digest", fix)
    tools = row.kind == TOOLS if row is not None else digest != mine[0].prompt
    flow = workflow or (workflow_in(mine[0].lane) if mine else workflow_in(row.lane) if row is not None else "")
    names = dict.fromkeys(
        each.tools if tools else each.prompt for each in reversed(requests) if workflow_in(each.lane) == flow
    )
    before = _before([name for name in names if name], digest)
    earlier = (await _texts(of, [before])).get(before) if before else None
    uses = prompt_uses(mine, {})
    return PromptDetail(
        digest=digest,
        kind="" if row is None else "tools" if tools else "instructions",
        text="" if row is None else shown_text(row),
        chars=0 if row is None else row.chars,
        cut=row is not None and row.chars > len(row.text),
        workflow=flow if row is None else workflow_in(row.lane),
        version=(uses[0].version if uses else 0) if row is None else version_in(row.lane),
        since=None if row is None else instant(row.since),
        previous=before,
        difference=[] if row is None or earlier is None else line_difference(shown_text(earlier), shown_text(row)),
        uses=uses,
        every=every,
    )


def _before(names: Sequence[str], digest: str) -> str:
    """Return the name before `digest`, by first sight; '' if there is none."""
    at = names.index(digest) if digest in names else 0
    return names[at - 1] if at else ""


def line_difference(before: str, after: str) -> list[DifferenceLine]:
    """Return the changed lines of two texts with some equal lines around them."""
    old, new = before.splitlines()[:LINES_MAX], after.splitlines()[:LINES_MAX]
    lines: list[DifferenceLine] = []
    end = 0
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND):
        if group[0][1] > end:
            lines.append(DifferenceLine(mark="left_out", text=f"{group[0][1] - end:,} equal lines"))
        end = group[-1][2]
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += [DifferenceLine(mark="same", text=line) for line in old[i:j]]
                continue
            lines += [DifferenceLine(mark="old", text=line) for line in old[i:j]]
            lines += [DifferenceLine(mark="new", text=line) for line in new[k:m]]
    if lines and len(old) > end:
        lines.append(DifferenceLine(mark="left_out", text=f"{len(old) - end:,} equal lines"))
    return lines


# --- tools ----------------------------------------------------------------------------------------------------
async def tool_list(of: TenantRows, *, workflow: str) -> ToolList:
    """Return the newest calls by tool and version of a workflow, with denials and rejected requests."""
    query, verdicts = NewestCalls(of.tenant), NewestVerdicts(of.tenant)
    calls = await of.store.query(query)
    denied = denials(await of.store.query(verdicts))
    rejected = await _rejected(of)
    uses = tool_uses(calls, denied, rejected, of.store.mapping().business)
    kept = [use for use in uses if workflow in ("", use.workflow)]
    read = len(calls) if not workflow else sum(use.calls for use in kept)
    return ToolList(tools=kept, read=read, every=len(calls) < query.most, denials_of=verdicts.runs)


def denials(verdicts: Iterable[RecordedVerdict]) -> Counter[tuple[str, str]]:
    """Count the calls that policies denied by lane and activity. A tool that was not offered is no call."""
    found: Counter[tuple[str, str]] = Counter()
    for each in verdicts:
        if each.key.startswith(OFFERS) or b'"deny"' not in each.body:
            continue
        try:
            body: Any = json.loads(each.body)
        except ValueError:
            continue  # fsck reports it
        if isinstance(body, dict) and body.get("verdict") == "deny":
            found[each.lane, str(body.get("activity", ""))] += 1
    return found


async def _rejected(of: TenantRows) -> Counter[tuple[str, str]]:
    """Count the newest requests that people rejected by lane and activity."""
    rows: list[Approval] = []
    for status in (ApprovalStatus.REJECTED, ApprovalStatus.AGAIN):
        rows += (await of.store.page(APPROVAL, of.tenant, {"status": status.value}, limit=REJECTED_MAX)).rows
    runs = await of.store.load_many(RUN, [*dict.fromkeys((row.tenant, row.run) for row in rows)], listed=True)
    lanes = {run.run: run.lane for run in runs if run is not None}
    return Counter((lanes.get(row.run, ""), name) for row in rows for name in _offered(row))


def _offered(row: Approval) -> tuple[str, ...]:
    try:
        return (row.plans[0].activity,) if row.plans else ()
    except Corrupt:
        return ()  # fsck reports it


def tool_uses(
    calls: Iterable[CountedCall],
    denied: Counter[tuple[str, str]],
    rejected: Counter[tuple[str, str]],
    business: Callable[[int], int],
) -> list[ToolUse]:
    """Return a line for each version of a workflow and tool, those with most calls first."""
    groups: dict[tuple[str, str], list[CountedCall]] = {name: [] for name in (*denied, *rejected)}
    for call in calls:
        groups.setdefault((call.lane, call.activity), []).append(call)
    uses = []
    for (lane, tool), found in groups.items():
        by = Counter(call.status for call in found)
        settled = (call for call in found if call.settled_at and call.status is EffectStatus.DONE)
        p50, p95 = _percentiles(max(0, call.settled_at - business(call.first_at)) for call in settled)
        uses.append(
            ToolUse(
                tool=tool,
                workflow=workflow_in(lane),
                version=version_in(lane),
                calls=len(found),
                done=by[EffectStatus.DONE],
                refused=by[EffectStatus.REFUSED],
                uncertain=by[EffectStatus.UNCERTAIN],
                undone=by[EffectStatus.UNDONE],
                open=by[EffectStatus.INTENDED],
                denied=denied[lane, tool],
                rejected=rejected[lane, tool],
                p50_ms=p50,
                p95_ms=p95,
            )
        )
    return sorted(uses, key=lambda use: (-use.calls, use.tool, use.workflow, -use.version))
