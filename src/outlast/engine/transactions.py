"""Writes whose effect commits in one transaction with what the author's code wrote: done once, and never in doubt."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from outlast.core import ledger as moves
from outlast.core.commit import Commit, Put, When
from outlast.core.route import cancel_of
from outlast.core.rows import EFFECT, Effect
from outlast.engine.inquiry import attempt_of
from outlast.engine.ledger import ConditionFailed, EffectKey, RunLost, StoreAway
from outlast.engine.outcome import Answered, Maybe, No, Outcome, Unsent, is_transient, judge
from outlast.engine.permission import Permission
from outlast.engine.shared import SharedExecutor
from outlast.engine.user_code import as_exception
from outlast.engine.walk import NodeExecution, Unresolved
from outlast.engine.write import EXHAUSTED, EffectExecutor, Next
from outlast.errors import DefinitionError, LimitExceeded, NotStorable, StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.outcomes import Declared
from outlast.flow.workflow import Workflow
from outlast.store.batch import INBOX_SEQ
from outlast.store.port import EndedByItself, Store, Transaction, Transactions

ENDED_ITSELF: Final = "ended_transaction"


def write_of(
    walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey
) -> Callable[[], EffectExecutor]:
    """What makes this write, in this walk. Raises DefinitionError where the store cannot."""
    shared = activity.scope == "tenant"
    if not activity.transaction:
        plain = SharedExecutor if shared else EffectExecutor
        return lambda: plain(walk, activity, call, ident)
    if not isinstance(walk.ledger.store, Transactions):
        raise _cannot(activity, walk.ledger.store)
    inside = _SharedTransactional if shared else TransactionalExecutor
    return lambda: inside(walk, activity, call, ident)


def check_served(store: Store, workflows: Iterable[Workflow[Any]]) -> None:
    """Raises DefinitionError where an activity of these workflows needs what the store cannot do."""
    for workflow in workflows:
        for activity in workflow.activities.values():
            undo = activity.undoing is not None and activity.undoing.transaction
            if (activity.transaction or undo) and not isinstance(store, Transactions):
                raise _cannot(activity, store)


def _cannot(activity: Activity[Any, Any], store: Store) -> DefinitionError:
    return DefinitionError(
        f"{activity.title} is declared with transaction=True",
        f"its own rows and its effect commit together; the store {store.url} cannot do that",
        "open the PostgreSQL store in the database of those rows, or take transaction=True away",
        where=activity.where,
    )


class TransactionalExecutor(EffectExecutor):
    """A write whose body is given the open transaction that lands its effect.

    Nothing is intended before the call: a process that dies leaves all of it or nothing. An attempt that came to
    nothing is kept as an open effect that is known to have done nothing, so that attempts and waits are counted.
    """

    _begun: Commit | None = None
    """The intent, which lands together with the record."""

    def _may_be_lost(self, effect: Effect | None) -> bool:
        """What a restore has lost of it, the author's rows have lost too."""
        return False

    async def _land_intent(self, previous: Effect | None, allowed: Permission) -> Effect:
        commit = self._prepared(previous, allowed)
        put = commit.writes[0]
        assert isinstance(put, Put)
        row = moves.intended(commit)._replace(quiet_until=0)
        covered = (When(row.covered_until, False, "business", "lapsed"),) if row.covered_until else ()
        self._begun = commit._replace(writes=(Put(EFFECT, row, put.replaces), *commit.writes[1:]), whens=covered)
        return row

    async def settle_open(self, effect: Effect) -> Any:
        """It is open, so it did nothing, whoever attempted it."""
        await self._wait_for_next(effect)
        if self._approval_lapsed(effect):
            return self._lapse(effect)
        return Next.CALL if moves.tries(effect) < self.callee.retry.attempts else self._exhausted_open(effect)

    async def _make(self, effect: Effect) -> Outcome:
        store, serializable = self.ledger.store, self.callee.transaction == "serializable"
        assert isinstance(store, Transactions)
        try:
            async with store.transaction(self.times.timeout, serializable=serializable) as transaction:
                return await self._made(effect, transaction)
        except StoreError as error:
            raise self.ledger.why(error) from error

    async def _made(self, effect: Effect, transaction: Transaction) -> Outcome:
        """The body, and its effect: both, or an outcome that says why neither."""
        attempt = attempt_of(self.walk, self.callee, self.call.args, self.call.kwargs, effect)
        try:
            answer = await self.walk.around.caller.inside(attempt._replace(connection=transaction.connection))
            response = self.callee.response_codec.dump(answer.value)
            await self._land(effect._replace(external_id=answer.external_id), response, transaction)
        except (NotStorable, LimitExceeded) as error:
            return No(EXHAUSTED, f"its answer cannot be stored, so it was rolled back: {error.what}: {error.why}")
        except EndedByItself as error:
            return Maybe(ENDED_ITSELF, str(error)) if error.stands else No(EXHAUSTED, str(error))
        except (Unresolved, RunLost, ConditionFailed, StoreAway, StoreError):
            raise
        except BaseException as error:  # whatever the author's function or the database raised is judged, not raised
            return self._rolled_back(as_exception(error), transaction)
        return Answered(response)

    def _rolled_back(self, error: Exception, transaction: Transaction) -> Outcome:
        """Nothing happened. What a further attempt may mend is attempted again; a mistake needs a person."""
        judged = judge(error, self.walk.around.clock.wall())
        if isinstance(error, Declared) and not isinstance(judged, Maybe):
            return judged
        if isinstance(judged, Unsent) or transaction.is_passing(error) or is_transient(error):
            return Unsent("rolled_back", judged.detail, judged.after_ms if not isinstance(judged, No) else 0)
        return No(EXHAUSTED, f"rolled back, and not tried again: {judged.detail}")

    async def _land(self, effect: Effect, response: bytes, transaction: Transaction) -> None:
        """COMMIT with the effect, unless a cancel was accepted before it (S-1)."""
        ledger = self.ledger
        assert self._begun is not None
        commits = (self._begun, self._recorded(effect, response))
        inbox_seq = None if ledger.run.ending else ledger.inbox_read  # a run that ends already heeds no further cancel
        while True:
            named = [c._replace(fence=c.fence._replace(inbox_seq=inbox_seq)) for c in commits if c.fence is not None]
            try:
                return await ledger.land_within(transaction, named)
            except ConditionFailed as moved:
                if moved.reason != INBOX_SEQ or inbox_seq is None:
                    raise
            messages = await ledger.new_notes()  # the run's row is locked: no further one comes
            if (cancel := cancel_of(messages)) is not None:
                self.walk.cancelled(cancel)
                raise Unresolved
            inbox_seq = max(n.n for n in messages)

    async def _after(self, effect: Effect, outcome: Outcome) -> Any:
        if isinstance(outcome, Answered):
            return self.callee.response_codec.load(outcome.value)
        assert self._begun is not None
        self.ledger.submit(self._begun)
        return await super()._after(effect, outcome)


class _SharedTransactional(TransactionalExecutor, SharedExecutor):
    """The same of scope `tenant`: of two runs that make it at once, the second finds the effect and rolls back."""
