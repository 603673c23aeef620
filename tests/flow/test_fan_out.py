"""Result of a set of calls or children: by key in the order of the input, each value loaded when it is read (S-31)."""

import asyncio

import pytest

from outlast import FanOut, Refused
from outlast.core.enough import SetState
from outlast.core.limits import STATE_BYTES_MAX
from outlast.core.machine import MemberStatus
from outlast.errors import InvalidInput, LimitExceeded
from outlast.flow.fan_out import Loaded

STATUSES = {
    "bo": MemberStatus.COMPLETED,
    "al": MemberStatus.FAILED,
    "cy": MemberStatus.NOT_STARTED,
    "di": MemberStatus.COMPLETED,
    "ed": MemberStatus.CANCELLED,
}


class Members:
    """Loads members, and remembers which."""

    def __init__(self, size: int = 0) -> None:
        self.loaded: list[str] = []
        self._size = size

    async def load(self, key: str) -> Loaded[int]:
        self.loaded.append(key)
        if STATUSES[key] is not MemberStatus.COMPLETED:
            raise Refused(key)
        return Loaded(len(self.loaded), self._size)


def test_keys_and_values_come_in_the_order_of_the_input() -> None:
    members = Members()
    done = FanOut(STATUSES, SetState.ENOUGH, members.load)
    assert [done.completed, done.failed, done.cancelled, done.not_started] == [["bo", "di"], ["al"], ["ed"], ["cy"]]
    assert done.enough and list(done.statuses) == ["bo", "al", "cy", "di", "ed"]
    assert members.loaded == []
    assert list(asyncio.run(done.values()).items()) == [("bo", 1), ("di", 2)]


def test_one_value_is_loaded_at_a_time() -> None:
    members = Members(STATE_BYTES_MAX // 2 + 1)
    done = FanOut(STATUSES, SetState.ENOUGH, members.load)

    async def first() -> None:
        async for key, value in done:
            assert (key, value) == ("bo", 1)
            break

    asyncio.run(first())
    assert members.loaded == ["bo"]
    assert asyncio.run(done.value("di")) == 2
    with pytest.raises(LimitExceeded, match=r"values\(\) of 2 results has more than"):
        asyncio.run(done.values())


def test_errors_are_those_of_the_members() -> None:
    enough, failed = (FanOut(STATUSES, state, Members().load) for state in (SetState.ENOUGH, SetState.TOO_FEW))
    assert enough.enough and not failed.enough
    asyncio.run(enough.raise_failed())
    with pytest.raises(Refused, match="al"):
        asyncio.run(failed.raise_failed())
    errors = asyncio.run(failed.errors())
    assert list(errors) == ["al"] and isinstance(errors["al"], Refused)
    with pytest.raises(InvalidInput, match="without members"):
        asyncio.run(FanOut({}, SetState.TOO_FEW, Members().load).raise_failed())
    with pytest.raises(Refused, match="ed"):
        asyncio.run(failed.value("ed"))


@pytest.mark.parametrize(("key", "why"), [("cy", "it never started"), ("zz", "the set has no such key")])
def test_what_never_began_has_no_value(key: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        asyncio.run(FanOut(STATUSES, SetState.ENOUGH, Members().load).value(key))
