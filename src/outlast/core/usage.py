"""Usage that calls report, the limits of budgets, and their rows. Money is counted in micros, 1e-6 of the currency."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.durations import DAY, MINUTE
from outlast.errors import InvalidInput

Money: TypeAlias = Decimal | str | int | float
"""An amount of money. A float is read as the decimal number that it prints as."""
MICROS: Final = 1_000_000
AMOUNT_MAX: Final = 10**15
"""One amount: tokens, micros or calls. A sum of 9,000 such amounts fits a column of 64 bits."""
MODEL_CHARS_MAX: Final = 200
SUMMED: Final = 0
"""Epoch of the rows that are sums of others. A claim has a higher one."""


class Amounts(NamedTuple):
    """Amounts that calls used, or that a raise adds. `ms` is business time, `children` are runs that were started.

    `unpriced` counts the calls that reported tokens without a price. It has no limit, so it follows the others.
    """

    tokens: int = 0
    money: int = 0  # micros
    calls: int = 0
    ms: int = 0
    children: int = 0
    unpriced: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sums of both."""
        return Amounts(*[a + b for a, b in zip(self, other, strict=True)])


NOTHING_USED: Final = Amounts()


class Limits(NamedTuple):
    """Limits of a budget, in the units of `Amounts`. None: no limit."""

    tokens: int | None = None
    money: int | None = None
    calls: int | None = None
    ms: int | None = None
    children: int | None = None

    @property
    def of_calls(self) -> "Limits":
        """Return the limits that stop a call."""
        return self if self.children is None else self._replace(children=None)

    @property
    def of_starts(self) -> "Limits":
        """Return the limit that stops the start of a child run."""
        return Limits(children=self.children)


NO_LIMITS: Final = Limits()


class ModelText(NamedTuple):
    """Text that requests to models have in common: the instructions, or the offered tools as JSON."""

    digest: str
    kind: str  # INSTRUCTIONS or TOOLS
    text: str
    chars: int  # of the whole text


class AskedModel(NamedTuple):
    """Facts about a request to a model beside its usage. Empty for any other call.

    `outcome` is '' for an answer that can be used, else the end of the answer or the name of the error.
    """

    prompt: str = ""  # digest of the instructions
    tools: str = ""  # digest of the offered tools
    ms: int = 0
    outcome: str = ""
    texts: tuple[ModelText, ...] = ()


NOT_ASKED: Final = AskedModel()
INSTRUCTIONS: Final = "instructions"
TOOLS: Final = "tools"


class Used(NamedTuple):
    """Usage as one call of `this_call().used` reports it."""

    attempt: int
    model: str
    tokens: int
    input_tokens: int
    output_tokens: int
    money: int  # micros
    calls: int
    unpriced: int = 0  # calls that reported tokens without a price
    note: str = ""  # what was wrong with a report that is not counted
    asked: AskedModel = NOT_ASKED

    def plus(self, other: "Used") -> "Used":
        """Return the sums of two reports of one attempt and model."""
        return self._replace(**_sums(self, other), asked=self.asked if self.asked.prompt else other.asked)


class CallUsage(NamedTuple):
    """Usage of one attempt of a call, in the commit of its memo or effect. `n` counts the rows of one claim."""

    tenant: str
    run: str
    epoch: int
    n: int
    visit: int
    key: str
    attempt: int
    activity: str
    day: int  # business day since 1970, UTC
    model: str
    tokens: int
    input_tokens: int
    output_tokens: int
    money: int  # micros
    calls: int
    at: int  # business
    unpriced: int = 0  # calls that reported tokens without a price; `money` has nothing of them
    root: str = ""  # the run at the top of its tree; '' = its own run
    prompt: str = ""  # digest of the instructions of a request to a model; '' = not recorded, or none
    tools: str = ""  # digest of the tools that the request offered
    ms: int = 0  # time of the request; 0 = not recorded
    outcome: str = ""  # end of an answer that cannot be used, or name of the error; '' = answered

    @property
    def amounts(self) -> Amounts:
        """Return the amounts that count towards a budget, and the calls without a price."""
        return Amounts(self.tokens, self.money, self.calls, unpriced=self.unpriced)

    def plus(self, other: "CallUsage") -> "CallUsage":
        """Return the later of two rows, with the sums of both."""
        return max(self, other, key=lambda row: row.at)._replace(**_sums(self, other))


def no_request(row: CallUsage) -> CallUsage:
    """Return a row that is a sum: it names no texts and no end of a request."""
    return row._replace(prompt="", tools="", ms=0, outcome="")


_COUNTED: Final = ("tokens", "input_tokens", "output_tokens", "money", "calls", "unpriced")


def _sums(one: Used | CallUsage, other: Used | CallUsage) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in _COUNTED}


class TenantBudget(NamedTuple):
    """Budget of a tenant for each business day, set by an operator. None: no limit."""

    tenant: str
    key: str  # 'day'
    version: int
    tokens: int | None
    money: int | None  # micros
    calls: int | None
    by: str
    reason: str
    since: int

    @property
    def limits(self) -> Limits:
        """Return the limits of one day."""
        return Limits(self.tokens, self.money, self.calls)


EACH_DAY: Final = "day"


def day_of(business: int) -> int:
    """Return the business day of an instant, counted since 1970."""
    return business // DAY


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of the usage that the calls of a run report. None: no limit.

    - `tokens`, `money`: sums of what calls report with `this_call().used(…)`. `money` may be a Decimal, text, int or
      float; it is kept in millionths of the currency, and a smaller part is rounded up. A request without a price adds
      no money.
    - `calls`: calls that report usage. In an agent these are the requests to the model, not the calls of its tools.
    - `minutes`: business time since the start of the run, waits included.
    - `children`: runs that it may start, those that have ended included. In the root of a tree: all runs below it.

    A run that has used up one of them parks, and a person raises it. A model that asks for one child too many gets an
    answer instead. Raises InvalidInput.
    """

    tokens: int | None = None
    money: Money | None = None
    calls: int | None = None
    minutes: float | None = None
    children: int | None = None

    def __post_init__(self) -> None:
        """Check each limit. Raises InvalidInput."""
        if self.limits == NO_LIMITS:
            raise InvalidInput("a budget without a limit", "", "give tokens, money, calls, minutes or children")

    @property
    def limits(self) -> Limits:
        """Return the limits in the units of rows. Raises InvalidInput."""
        return Limits(
            None if self.tokens is None else count("tokens", self.tokens),
            None if self.money is None else micros(self.money),
            None if self.calls is None else count("calls", self.calls),
            None if self.minutes is None else minutes(self.minutes),
            None if self.children is None else count("children", self.children),
        )


def micros(money: Money) -> int:
    """Return an amount of money in micros, rounded up. Raises InvalidInput."""
    if isinstance(money, bool):
        raise _wrong("money", money)
    try:
        exact = Decimal(repr(money) if isinstance(money, float) else money) * MICROS
        if not 0 <= exact <= AMOUNT_MAX:  # before it becomes an integer, which could have a million digits
            raise _wrong("money", money)
        return int(exact.to_integral_value(ROUND_CEILING))
    except (ArithmeticError, ValueError, TypeError):
        raise _wrong("money", money) from None


def count(name: str, number: int) -> int:
    """Return a number of tokens, calls or children. Raises InvalidInput."""
    if type(number) is not int:
        raise _wrong(name, number)
    return _bounded(name, number, number)


def minutes(number: float) -> int:
    """Return minutes in ms. Raises InvalidInput."""
    if type(number) not in (int, float) or not 0 <= number <= AMOUNT_MAX:  # so that its product is finite
        raise _wrong("minutes", number)
    return _bounded("minutes", number, int(number * MINUTE))


def amounts_of(tokens: int, money: Money, calls: int, minutes_: float, children: int = 0) -> Amounts:
    """Return amounts as people give them in the units of rows. Raises InvalidInput."""
    of_calls = count("tokens", tokens), micros(money), count("calls", calls), minutes(minutes_)
    return Amounts(*of_calls, count("children", children))


def _bounded(name: str, given: object, whole: int) -> int:
    if not 0 <= whole <= AMOUNT_MAX:
        raise _wrong(name, given)
    return whole


def _wrong(name: str, given: object) -> InvalidInput:
    whole = "a number" if name in ("money", "minutes") else "a whole number"
    try:
        shown = repr(given)
    except ValueError:  # an integer of more digits than Python converts to text
        shown = "longer"
    return InvalidInput(f"{name} is {shown}"[:200], f"it is {whole} from 0 to 10^15", f"e.g. {name}=50")


def money_text(amount: int) -> str:
    """Return micros as a decimal number: 1.5, 0.000002."""
    text = f"{amount // MICROS}.{amount % MICROS:06d}".rstrip("0")
    return text.removesuffix(".")
