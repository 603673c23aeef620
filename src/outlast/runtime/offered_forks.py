"""Forks for clients: the checkpoints of a run, the preview of a fork, and the answer to its start."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from outlast.core.forks import CopiedCall
from outlast.core.keys import scope_of_shared
from outlast.engine.fork_start import ForkRequest, PreviewedFork, StartedFork, offers_of, preview
from outlast.flow.workflow import Workflow
from outlast.insight.tenant_rows import TenantRows
from outlast.insight.value_changes import changed_places, shown_change
from outlast.models import instant
from outlast.models.fork_answers import (
    ForkPointList,
    ForkPreview,
    ForkSignal,
    LaterCall,
    OfferedPoint,
    PreviewedCall,
    RunForked,
    StateChange,
)
from outlast.telemetry.redact import redacted

LATER_MAX: Final = 200
CHANGES_MAX: Final = 100


async def fork_points(rows: TenantRows, run: str) -> ForkPointList:
    """Return the checkpoints from which a run can be forked. Raises NotFound, Conflict."""
    in_flight, offered = await offers_of(rows.store, rows.tenant, run)
    found = [
        OfferedPoint(
            checkpoint=point.seq,
            node=point.node,
            visit=point.visit,
            at=instant(point.at),
            to_accept=[*point.to_accept],
            past=sum(call.past for call in calls),
            later=_later(calls),
        )
        for point, calls in offered
    ]
    return ForkPointList(run=run, in_flight=in_flight, points=found)


def forked(asked: ForkRequest, started: StartedFork) -> RunForked:
    """Return the answer to the start of a fork."""
    return RunForked(
        fork=started.run,
        created=started.created,
        run=asked.of,
        checkpoint=started.point.seq,
        node=started.point.node,
        effects=asked.effects,
        lookups=asked.lookups,
        approvers=asked.approvers,
        copied=sum(call.past for call in started.copied),
        later=_later(started.copied),
        changed=[*started.changed],
        accepted=[*started.point.to_accept],
        both_go_on=asked.both_go_on,
    )


async def fork_preview(rows: TenantRows, workflow: Workflow[Any], asked: ForkRequest) -> ForkPreview:
    """Return what a fork would do. Raises NotFound, Conflict, InvalidInput."""
    found = await preview(rows.store, workflow, asked, tenant=rows.tenant)
    return await asyncio.to_thread(_preview_of, asked, found)  # redaction of a large state takes seconds


def _preview_of(asked: ForkRequest, found: PreviewedFork) -> ForkPreview:
    before, later = json.loads(found.before), {message.n for message in found.signals}
    shown = redacted(before)
    places = list(changed_places(before, json.loads(found.state))) if found.state != found.before else []
    return ForkPreview(
        run=asked.of,
        checkpoint=found.point.seq,
        node=found.point.node,
        visit=found.point.visit,
        at=instant(found.point.at),
        effects=asked.effects,
        lookups=asked.lookups,
        approvers=asked.approvers,
        in_flight=found.in_flight,
        refused=[f"{each.what}: {each.why}" if each.why else each.what for each in found.refused],
        copied=len(found.past),
        calls=[PreviewedCall(**vars(_later_call(call)), outcome=outcome) for call, outcome in found.later[:LATER_MAX]],
        more_calls=max(0, len(found.later) - LATER_MAX),
        to_accept=[*found.point.to_accept],
        signals=[
            ForkSignal(
                signal=message.signal_id or str(message.n),
                name=message.name,
                by=message.actor,
                at=instant(message.at),
                sent=message.n in found.sent,
            )
            for message in found.signals[:LATER_MAX]
        ],
        unread=sum(n not in later for n in found.sent),
        state=shown,
        redacted=shown != before,
        changes=[
            StateChange(path=path, checkpoint=old, fork=new)
            for path, old, new in map(shown_change, places[:CHANGES_MAX])
        ],
        more_changes=max(0, len(places) - CHANGES_MAX),
    )


def _later(calls: Sequence[CopiedCall]) -> list[LaterCall]:
    """Return the calls after the checkpoint."""
    return [_later_call(call) for call in calls if not call.past][:LATER_MAX]


def _later_call(call: CopiedCall) -> LaterCall:
    return LaterCall(
        activity=call.activity,
        key=call.key,
        kind=call.kind,
        once_per=call.once_per if call.once_per != "tenant" else scope_of_shared(call.key),
        visit=call.visit,
        status=call.status,
    )
