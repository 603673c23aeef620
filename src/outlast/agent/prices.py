"""Prices of models: the price that a model declares, else the list of pydantic-ai. A money budget counts them."""

import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from outlast.core.usage import Money, micros
from outlast.errors import InvalidInput
from outlast.flow.registry import PRICED

PRICE: Final = "OUTLAST_MODEL_PRICE"
MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model in the currency of the budgets: `input` and `output` for a million tokens each."""

    input: Money
    output: Money

    def __post_init__(self) -> None:
        """Check both amounts. Raises InvalidInput."""
        micros(self.input)
        micros(self.output)

    def of(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the price of a request with `input_tokens` and `output_tokens`."""
        return (_exact(self.input) * input_tokens + _exact(self.output) * output_tokens) / MILLION


FREE: Final = Price(0, 0)
REPORTED: Final = "reported"
"""Price of a model whose answers carry `money`."""
ModelPrice: TypeAlias = Price | Literal["reported"]


def _exact(money: Money) -> Decimal:
    return Decimal(repr(money) if isinstance(money, float) else money)


def price_of(model: Any, input_tokens: int, output_tokens: int) -> Decimal | None:
    """Return the price of a request to `model`; None if its price is not known.

    `model` is a model, or the name of one.
    """
    declared = declared_price(model)
    if isinstance(declared, Price):
        return declared.of(input_tokens, output_tokens)
    return None if declared == REPORTED else list_price(_name(model), input_tokens, output_tokens)


def has_price(model: Any) -> bool:
    """True if each request to `model` has a price. `model` is a model, or the name of one."""
    return declared_price(model) is not None or list_price(_name(model), 0, 0) is not None


PRICED.append(has_price)


def declared_price(model: Any) -> ModelPrice | None:
    """Return the `price` of a model, or that of OUTLAST_MODEL_PRICE for a name; None without one."""
    if isinstance(model, str):
        return price_from_environment()
    price = getattr(model, "price", None)
    return price if isinstance(price, Price) or price == REPORTED else None


def price_from_environment() -> Price | None:
    """Return the price in OUTLAST_MODEL_PRICE, «INPUT/OUTPUT» for a million tokens; None without one.

    Raises InvalidInput.
    """
    text = os.environ.get(PRICE, "")
    if not text:
        return None
    given = text.split("/")
    if len(given) != 2:
        raise InvalidInput(f"{PRICE} is {text[:100]!r}", "it names two prices for a million tokens", f"{PRICE}=1.25/10")
    return Price(given[0].strip(), given[1].strip())


def list_price(name: str, input_tokens: int, output_tokens: int) -> Decimal | None:
    """Return the list price of a request in dollars, by the name `provider:model`; None if the list lacks it.

    The list is that of pydantic-ai. Without its package no model has a list price.
    """
    try:
        from genai_prices import Usage, calc_price
    except ModuleNotFoundError:
        return None
    provider, _, model = name.rpartition(":")
    try:
        used = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return calc_price(used, model_ref=model, provider_id=provider or None).total_price
    except (LookupError, ValueError):  # the list has no such model
        return None


def _name(model: Any) -> str:
    return model if isinstance(model, str) else str(model.name)
