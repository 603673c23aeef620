"""Decision how the ledger answers a call of the author's code, before anything is sent (S-17, S-18, S-27).

A body is executed again after each wait, crash and deploy, and asks for the same calls again. Four things can go wrong:
a call is made a second time, a call gets the answer of another one, a body gets an answer that a person may still
correct, and a call is made although recorded ones were not asked for. `answer_of` excludes them. It is a pure function
of the row that was recorded under the key, the call, the activity, facts of the visit, and facts gathered for earlier
answers. The caller carries the answer out. Three answers ask for more: the caller gathers it and asks again.

The first row that fits decides:

| recorded for this key                     | further condition                            | answer                    |
|-------------------------------------------|----------------------------------------------|---------------------------|
| other digest, other activity              | it is an effect                              | Contradiction             |
| other digest                              | not compared yet                             | Compare                   |
| other digest                              | the calls differ, no person chose the row    | Contradiction             |
| other digest                              | same call, or a person chose the row         | continue with the row     |
| nothing                                   | recorded calls were not asked for; not noted | Hold                      |
| anything not settled                      | the body has returned                        | Linger                    |
| anything                                  | key is under way with another digest         | UnderWay                  |
| nothing, lookup                           | the visit recorded an error of it            | RaiseObserved             |
| nothing, lookup                           |                                              | Drive                     |
| nothing, once per tenant; or it is undone |                                              | ReadShared, then as below |
| nothing                                   |                                              | Drive                     |
| answer of a lookup                        |                                              | Replay                    |
| refusal of a lookup                       |                                              | RaiseRefused              |
| intended, or a person reopened it         |                                              | Drive                     |
| a person's answer that no body was given  |                                              | GiveStated                |
| done                                      |                                              | Replay                    |
| uncertain                                 |                                              | AskPerson                 |
| refused, or undone in this run            |                                              | RaiseRefused              |

The row of another run of the tenant, when it is asked for:

| shared row                                | further condition                            | answer                    |
|-------------------------------------------|----------------------------------------------|---------------------------|
| as this run knows it                      | it is not one that this run uses             | ReadShared                |
| none, or it is undone                     |                                              | Drive                     |
| other digest                              | as above                                     | Compare, Contradiction    |
| a person reopened it                      |                                              | Drive                     |
| refused                                   | by a person, and no body was given it        | GiveStated                |
| refused                                   |                                              | RaiseRefused              |
| open, uncertain, or about to be undone    |                                              | WaitForOther              |
| done                                      | its answer does not load; a person stated it | ReadOwner                 |
| done                                      | as above, and its own run has not ended      | WaitForOther              |
| done                                      | its answer does not load                     | RaiseUnfit                |
| done                                      |                                              | UseShared                 |
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from outlast.core.effect_verbs import is_usable
from outlast.core.keys import OncePer
from outlast.core.machine import EffectStatus, Reason
from outlast.core.mailbox import is_reopened
from outlast.core.rows.effect_rows import STATED, USED, Effect, Memo
from outlast.core.rows.run_rows import Message


# --- facts of the decision ------------------------------------------------------------------------
class RequestedCall(Protocol):
    """Call for which the author's code asks."""

    @property
    def digest(self) -> str:
        """Return the digest of the activity, the key and the arguments."""


class CallRules(Protocol):
    """Declaration of the activity of a call."""

    @property
    def name(self) -> str:
        """Return the stored name of the activity."""

    @property
    def kind(self) -> Literal["write", "lookup"]:
        """Return whether its calls are recorded as effects or as memos."""

    @property
    def once_per(self) -> OncePer:
        """Return the scope of its keys."""

    @property
    def durable(self) -> bool:
        """Return True for a lookup that costs money."""


class VisitFacts(NamedTuple):
    """Facts of the execution and its visit about the key of a call."""

    holds: bool = False
    """Recorded calls of the activity have not been asked for, so a new one must wait."""
    lingering: bool = False
    """The body has returned. Only recorded calls are answered, for tasks that it left behind."""
    first_digest: str = ""
    """Digest of the first call under the key in this execution; '' for the first one."""
    joins: bool = False
    """That call is in flight, and a person chose its answer for the present call."""
    noted: bool = False
    """This run uses, waits for, or was refused by the shared effect of the key."""
    observed: Memo | None = None
    """Error of a lookup that the visit has recorded, because the body went on from it."""
    counts_failures: bool = False
    """The workflow counts refused calls when it ends."""


FIRST: Final = VisitFacts()
"""Facts of the first call under a key, in the first execution of a visit."""


class Compared(Enum):
    """Comparison of a call with the recorded call of its key, whose digest is another one."""

    SAME = "same"
    """It is the same call, whose arguments were written in a former way."""
    CHOSEN = "chosen"
    """A person chose the recorded answer for exactly this call."""
    DIFFERS = "differs"


class SharedFacts(NamedTuple):
    """The row that another run of the tenant recorded under the key, as far as it was read."""

    row: Effect | None = None
    fresh: bool = False
    """The row was read for this call."""
    unfit: bool = False
    """The recorded answer does not load as the activity's type."""
    owner_is_over: bool | None = None
    """The run that made the call has ended; None: not read."""


class Gathered(NamedTuple):
    """Facts that the caller has gathered because an earlier answer asked for them."""

    compared: Compared | None = None
    differs: str = ""
    """Difference of the calls, if the activity can tell."""
    held: bool = False
    """The call was held, and released since."""
    shared: SharedFacts | None = None


NOTHING: Final = Gathered()


def is_chosen(messages: Iterable[Message], visit: int, key: str, digest: str | None) -> bool:
    """Return True if a person chose the recorded answer of a key for exactly this call; None stands for any call."""
    return any(
        (of_visit, of_key) == (visit, key) and digest in (None, of)
        for message in messages
        if message.kind == "answer" and message.name == Reason.CONTRADICTION
        for of_visit, of_key, of in message.answer.recorded
    )


# --- answers -----------------------------------------------------------------------------------------
class Replay(NamedTuple):
    """Return the recorded response, or raise that it is not stored."""

    row: Effect | Memo


class GiveStated(NamedTuple):
    """Return or raise a person's answer, after a commit that ends the time in which it may be corrected.

    `notes`: record first that another run's refusal counts for this run.
    """

    row: Effect
    notes: bool = False


class RaiseRefused(NamedTuple):
    """Raise the recorded refusal. `notes`: as above."""

    row: Effect | Memo
    notes: bool = False


class RaiseObserved(NamedTuple):
    """Raise the error of a lookup that an earlier execution of the visit went on from."""

    row: Memo


class Contradiction(NamedTuple):
    """Ask a person: the key is recorded for another call."""

    row: Effect | Memo
    differs: str = ""


class UnderWay(NamedTuple):
    """Ask a person: a call of this execution is in flight under the key with other arguments."""


class AskPerson(NamedTuple):
    """Ask a person: it is not known whether the call happened."""

    row: Effect


class Hold(NamedTuple):
    """Wait until the body has asked for the recorded calls, then ask again."""


class Linger(NamedTuple):
    """Never answer, because the body has returned and the call would begin something new."""


class Compare(NamedTuple):
    """Compare the call with the recorded one, then ask again."""

    row: Effect | Memo


class ReadShared(NamedTuple):
    """Read the row of the key that another run of the tenant may have recorded, then ask again.

    One call at a time reads and continues. A second call under the key waits for its answer.
    """


class ReadOwner(NamedTuple):
    """Read whether the run of a shared effect has ended, then ask again."""

    run: str


class UseShared(NamedTuple):
    """Load the response of another run's effect, then return it. If it does not load, ask again.

    `records`: commit first that this run uses it, because from then on it is not undone.
    """

    row: Effect
    records: bool


class RaiseUnfit(NamedTuple):
    """Raise that the response of another run's effect does not load."""


class WaitForOther(NamedTuple):
    """Park until the run that made the call has settled its effect."""

    row: Effect


class DriveWith(Enum):
    """Arguments of a call that is made."""

    REQUESTED = "requested"
    RECORDED = "recorded"
    """Those of the row: the effect is open, and its receiver may have seen them."""


class Drive(NamedTuple):
    """Make the call; `core/effect_steps.py` decides its steps. A lookup is made and recorded."""

    arguments: DriveWith = DriveWith.REQUESTED


FirstAnswer: TypeAlias = (
    Replay
    | GiveStated
    | RaiseRefused
    | RaiseObserved
    | Contradiction
    | UnderWay
    | AskPerson
    | Hold
    | Linger
    | Compare
    | ReadShared
    | ReadOwner
    | UseShared
    | RaiseUnfit
    | WaitForOther
    | Drive
)

# answers without a row are made once, because most calls get one of them
DRIVE: Final = Drive()
DRIVE_RECORDED: Final = Drive(DriveWith.RECORDED)
READ_SHARED: Final = ReadShared()
HOLD: Final = Hold()
LINGER: Final = Linger()
UNDER_WAY: Final = UnderWay()


# --- the decision ------------------------------------------------------------------------------------
def answer_of(
    recorded: Effect | Memo | None,
    call: RequestedCall,
    rules: CallRules,
    visit: VisitFacts = FIRST,
    gathered: Gathered = NOTHING,
) -> FirstAnswer:
    """Return what the ledger answers to a call. `recorded` is this run's row of its key."""
    if gathered.shared is not None:
        return _of_shared(gathered.shared, call, rules, visit, gathered)
    digest, drive = call.digest, DRIVE
    if recorded is not None and recorded.digest != digest:
        if (question := _other_digest(recorded, rules, gathered)) is not None:
            return question
        digest, drive = recorded.digest, DRIVE_RECORDED
    if visit is not FIRST and (stop := _not_now(recorded, digest, rules, visit, gathered)) is not None:
        return stop
    if recorded is None:
        return READ_SHARED if rules.kind != "lookup" and rules.once_per == "tenant" else drive
    if isinstance(recorded, Memo):
        return RaiseRefused(recorded) if recorded.error_text else Replay(recorded)
    if rules.once_per == "tenant" and recorded.status is EffectStatus.UNDONE:
        return READ_SHARED
    if recorded.status is EffectStatus.INTENDED or is_reopened(recorded):
        return drive
    if recorded.shared == STATED:
        return GiveStated(recorded)
    if recorded.status is EffectStatus.DONE:
        return Replay(recorded)
    return AskPerson(recorded) if recorded.status is EffectStatus.UNCERTAIN else RaiseRefused(recorded)


def _other_digest(row: Effect | Memo, rules: CallRules, gathered: Gathered) -> Compare | Contradiction | None:
    """Return the answer to a call with another digest than its row; None if the row serves it."""
    if row.activity != rules.name and isinstance(row, Effect):
        return Contradiction(row)
    if gathered.compared is None:
        return Compare(row)
    return Contradiction(row, gathered.differs) if gathered.compared is Compared.DIFFERS else None


def _not_now(
    recorded: Effect | Memo | None, digest: str, rules: CallRules, visit: VisitFacts, gathered: Gathered
) -> Hold | Linger | UnderWay | RaiseObserved | None:
    """Return the answer if the execution is not to continue with the row, or with a new call."""
    if recorded is None and visit.holds and not (visit.noted or gathered.held or _is_free(rules)):
        return HOLD
    if visit.lingering and not _is_settled(recorded):
        return LINGER
    if visit.first_digest not in ("", digest) and not visit.joins:
        return UNDER_WAY
    return RaiseObserved(visit.observed) if recorded is None and visit.observed is not None else None


def _is_free(rules: CallRules) -> bool:
    """Return True for a lookup that costs nothing, which a re-run may make as it likes."""
    return rules.kind == "lookup" and not rules.durable


def _is_settled(recorded: Effect | Memo | None) -> bool:
    if isinstance(recorded, Effect):
        return recorded.settled_at != 0 and not is_reopened(recorded)
    return recorded is not None


def _of_shared(
    shared: SharedFacts, call: RequestedCall, rules: CallRules, visit: VisitFacts, gathered: Gathered
) -> FirstAnswer:
    """Return what the row of another run answers."""
    row = shared.row
    if not shared.fresh and (row is None or row.shared != USED or not visit.noted):
        return READ_SHARED
    if row is None or row.status is EffectStatus.UNDONE:
        return DRIVE
    if row.digest != call.digest and (question := _other_digest(row, rules, gathered)) is not None:
        return question
    if is_reopened(row):
        return DRIVE
    if row.status is EffectStatus.REFUSED:
        gives = GiveStated if row.shared == STATED else RaiseRefused
        return gives(row, notes=visit.counts_failures)
    if not is_usable(row):
        return WaitForOther(row)
    if shared.unfit:
        return _unfit(shared, row)
    return UseShared(row, records=row.shared != USED or not visit.noted)


def _unfit(shared: SharedFacts, row: Effect) -> ReadOwner | WaitForOther | RaiseUnfit:
    """Decide about a response that does not load. If a person stated it, the run itself asks the person again."""
    if row.shared != STATED:
        return RaiseUnfit()
    if shared.owner_is_over is None:
        return ReadOwner(row.by_run)
    return RaiseUnfit() if shared.owner_is_over else WaitForOther(row)
