"""Requests to models by prompt: counts of the newest rows of a tenant."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from outlast.core.distributions import percentile
from outlast.core.durations import DAY
from outlast.core.lanes import version_in, workflow_in
from outlast.core.rows.row_kind import Key
from outlast.core.rows.text_rows import MODEL_TEXT, StoredModelText
from outlast.core.usage import TOOLS, day_of, money_text
from outlast.errors import NotFound
from outlast.insight.tenant_rows import TenantRows
from outlast.models import exact_instant, instant
from outlast.models.agents import DifferenceLine, PromptDetail, PromptList, PromptUse
from outlast.store.agent_calls import AskedRequest, NewestRequests
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
    p50, p95 = percentiles(each.ms for each in found if each.ms and (not each.outcome or each.outcome in UNUSABLE))
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


def percentiles(times: Iterable[int]) -> tuple[int | None, int | None]:
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
