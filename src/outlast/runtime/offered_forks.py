"""Forks for clients: the checkpoints of a run as they are shown, and the answer to the start of a fork."""

from collections.abc import Sequence
from typing import Final

from outlast.core.forks import CopiedCall
from outlast.engine.fork_start import ForkRequest, StartedFork, offers_of
from outlast.insight.tenant_rows import TenantRows
from outlast.models import instant
from outlast.models.fork_answers import ForkPointList, LaterCall, OfferedPoint, RunForked

LATER_MAX: Final = 200


async def fork_points(rows: TenantRows, run: str) -> ForkPointList:
    """Return the checkpoints from which a run can be forked. Raises NotFound, Conflict."""
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
        for point, calls in await offers_of(rows.store, rows.tenant, run)
    ]
    return ForkPointList(run=run, points=found)


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
    )


def _later(calls: Sequence[CopiedCall]) -> list[LaterCall]:
    """Return the calls after the checkpoint."""
    later = [call for call in calls if not call.past][:LATER_MAX]
    return [
        LaterCall(
            activity=call.activity,
            key=call.key,
            kind=call.kind,
            once_per=call.once_per,
            visit=call.visit,
            status=call.status,
        )
        for call in later
    ]
