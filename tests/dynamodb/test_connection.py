"""Addresses, credentials, and how requests end: sent once, and never reported as something else."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from outlast.errors import Rejected, StoreUnusable
from outlast.runtime import stores
from outlast.store.dynamodb.connection import (
    Away,
    ClockDifference,
    ConditionRefused,
    Conflicted,
    Connection,
    DynamoAddress,
    Throttled,
    Unusable,
    refused,
)
from tests.dynamodb import server
from tests.dynamodb.proxy import Fate, Wire, wire
from tests.mutants import remove

EXAMPLE = "dynamodb://eu-west-1/prod"
TABLE = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
NEW = "attribute_not_exists(pk)"
NEW_KEY = {"pk": {"S": "new"}}


# --- addresses ---------------------------------------------------------------------------------
def test_an_address_names_a_region_and_an_environment() -> None:
    address = DynamoAddress.parse(f"{EXAMPLE}?pitr=on")
    assert address == ("eu-west-1", "prod", None, True, EXAMPLE)
    assert address.table("runs") == "prod-runs"
    local = DynamoAddress.parse("dynamodb://local/test.1?endpoint=http://127.0.0.1:8000/")
    assert local == (
        "local", "test.1", "http://127.0.0.1:8000/", False, "dynamodb://local/test.1?endpoint=http://127.0.0.1:8000/",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("dynamodb:///prod", "a region is named by small letters"),
        ("dynamodb://key:secret@eu-west-1/prod", "a region is named by small letters"),
        ("dynamodb://eu-west-1:443/prod", "a region is named by small letters"),
        ("dynamodb://eu-west-1", "the environment is ''"),
        ("dynamodb://eu-west-1/a/b", "the environment is 'a/b'"),
        (f"dynamodb://eu-west-1/{'e' * 61}", "1 to 60 letters"),
        (f"{EXAMPLE}?endpoint=localhost:8000", "the endpoint is not http://HOST:PORT"),
        (f"{EXAMPLE}?endpoint=http://me:secret@localhost", "the endpoint is not http://HOST:PORT"),
        (f"{EXAMPLE}?endpoint=http://localhost:99999", "the endpoint is not http://HOST:PORT"),
        (f"{EXAMPLE}?pitr=yes", "pitr is 'yes'"),
        (f"{EXAMPLE}?pitr=on&pitr=off", "each at most once"),
        (f"{EXAMPLE}?schema=outlast", "at most once, not schema"),
        (f"{EXAMPLE}?on", "it cannot be parsed"),
        ("dynamodb://[eu/prod", "it cannot be parsed"),
    ],
)
def test_a_wrong_address_is_refused_with_an_example_and_without_its_secrets(url: str, why: str) -> None:
    with pytest.raises(StoreUnusable) as found:
        DynamoAddress.parse(url)
    assert why in found.value.why
    assert "dynamodb://eu-west-1/prod" in found.value.fix
    assert "secret" not in str(found.value)


# --- credentials -----------------------------------------------------------------------------
def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


async def authorization(endpoint: str) -> str:
    """Return what a request to an endpoint on this machine says about its credentials."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, server.connected(f"dynamodb://local/test?endpoint={endpoint}:{port}") as connection:
        with pytest.raises(Away):
            await connection.call("DescribeTable", TableName="test-runs")
    (line,) = [line for line in heard[0].decode().split("\r\n") if line.lower().startswith("authorization")]
    return line


def test_a_server_on_this_machine_needs_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    without_credentials(monkeypatch)
    assert "Credential=unchecked/" in asyncio.run(authorization("http://localhost"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "Credential=AKID/" in asyncio.run(authorization("http://127.0.0.1"))


@pytest.mark.parametrize("endpoint", ["", "?endpoint=http://dynamodb.example:8000"])
def test_another_server_needs_the_credentials_that_the_sdk_finds(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opened() -> None:
        async with server.connected(EXAMPLE + endpoint):
            pass

    without_credentials(monkeypatch)
    with pytest.raises(StoreUnusable, match="no credentials") as found:
        asyncio.run(opened())
    assert "AWS_PROFILE" in found.value.fix
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    asyncio.run(opened())
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(StoreUnusable, match="missing"):
        asyncio.run(opened())


def test_only_opening_a_store_at_dynamodb_loads_the_sdk() -> None:
    program = "import sys, outlast, outlast.runtime.stores; assert not {'aiohttp', 'botocore'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError("No module named 'aiobotocore'", name="aiobotocore")

    monkeypatch.setattr(stores, "import_module", missing)
    with pytest.raises(StoreUnusable, match="the extra `dynamodb`") as found:
        asyncio.run(stores.open_store(EXAMPLE))
    assert "outlast[dynamodb]" in found.value.fix
    assert stores.is_there(EXAMPLE)  # only the service knows


# --- how a request ended -----------------------------------------------------------------------
async def made(connection: Connection) -> str:
    """Create a table with one item `there`."""
    name = connection.address.table("runs")
    await connection.call("CreateTable", TableName=name, **TABLE)
    await connection.call("PutItem", TableName=name, Item={"pk": {"S": "there"}})
    return name


def put(name: str, pk: str, **more: Any) -> dict[str, Any]:
    return {"TableName": name, "Item": {"pk": {"S": pk}}, **more}


def test_values_come_back_as_they_went(url: str) -> None:
    item = {
        "pk": {"S": "caf\u00e9 \U0001f600 \x00\x7f"},
        "bytes": {"B": bytes(range(256))},
        "none": {"B": b""},
        "B": {"S": "an attribute named as a type"},
        "number": {"N": str(2**63 - 1)},
        "list": {"L": [{"B": b"\xff"}, {"M": {"B": {"B": b"1"}}}]},
    }

    async def main() -> None:
        async with server.connected(url) as connection:
            name = await made(connection)
            await connection.call("PutItem", TableName=name, Item=item)
            answer = await connection.call("GetItem", TableName=name, Key={"pk": item["pk"]}, ConsistentRead=True)
            assert answer["Item"] == item
            assert connection.requests == {"CreateTable": 1, "PutItem": 2, "GetItem": 1}

    asyncio.run(main())


def test_a_large_transaction_is_sent_whole(url: str) -> None:
    async def main() -> None:
        async with server.connected(url) as connection:
            name = await made(connection)
            items = [{"pk": {"S": f"{n}"}, "bytes": {"B": os.urandom(300_000)}} for n in range(4)]
            actions = [{"Put": {"TableName": name, "Item": item}} for item in items]
            await connection.call("TransactWriteItems", TransactItems=actions)
            keys = [{"pk": item["pk"]} for item in items]
            answer = await connection.call("BatchGetItem", RequestItems={name: {"Keys": keys}})
            assert sorted(answer["Responses"][name], key=lambda item: str(item["pk"])) == items

    asyncio.run(main())


def test_an_answer_that_refuses_names_the_reason(url: str) -> None:
    async def main() -> None:
        async with server.connected(url) as connection:
            name = await made(connection)
            with pytest.raises(ConditionRefused) as single:
                await connection.call("PutItem", **put(name, "there", ConditionExpression=NEW))
            assert single.value.reasons == ("ConditionalCheckFailed",)
            actions = [{"Put": put(name, "new")}, {"Put": put(name, "there", ConditionExpression=NEW)}]
            with pytest.raises(ConditionRefused) as several:
                await connection.call("TransactWriteItems", TransactItems=actions)
            assert several.value.reasons == ("None", "ConditionalCheckFailed")
            assert (await connection.call("GetItem", TableName=name, Key={"pk": {"S": "new"}})) == {}
            with pytest.raises(Rejected, match="key pk") as rejected:
                await connection.call("PutItem", TableName=name, Item={})
            assert rejected.value.landed is False
            with pytest.raises(Unusable, match="not found") as unusable:
                await connection.call("PutItem", **put(f"{name}.other", "new"))
            assert unusable.value.code == "ResourceNotFoundException"

    asyncio.run(main())


@pytest.mark.parametrize("operation", ["PutItem", "TransactWriteItems"])
def test_a_request_is_sent_once_however_it_ends(operation: str, env: str) -> None:
    """The count is the safeguard: a client that repeats a lost write by itself makes a second one."""

    async def ended(connection: Connection, name: str) -> Exception:
        action = put(name, "new", ConditionExpression=NEW)
        request = action if operation == "PutItem" else {"TransactItems": [{"Put": action}]}
        with pytest.raises((Away, ConditionRefused, Conflicted, Throttled)) as found:
            await connection.call(operation, **request)
        return found.value

    async def main(on: Wire) -> None:
        async with server.connected(server.url(env, on.endpoint), answer_s=0.5) as connection:
            name = await made(connection)
            away = {Fate.DROP, Fate.FAIL, Fate.LOSE, Fate.SILENT, Fate.HALF, Fate.FAIL_AFTER}
            for fate in (*away, *[Fate.THROTTLE] * 6, Fate.CONFLICT):
                on.rule(operation, fate)
                before = len(on.seen(operation))
                error = await ended(connection, name)
                assert len(on.seen(operation)) == before + 1, fate
                if fate in away:
                    assert isinstance(error, Away) and error.sent, (fate, error)
                    landed = fate not in (Fate.DROP, Fate.FAIL)
                    gone = await connection.call("DeleteItem", TableName=name, Key=NEW_KEY, ReturnValues="ALL_OLD")
                    assert ("Attributes" in gone) is landed, fate
                else:
                    assert isinstance(error, Throttled if fate is Fate.THROTTLE else Conflicted), (fate, error)
            assert connection.requests[operation] == len(on.seen(operation))

    with wire(server.endpoint()) as on:
        asyncio.run(main(on))


def test_a_client_that_repeats_a_lost_write_denies_it(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the SDK's retries, the second request meets the item of the first and says that nothing landed."""
    remove("lost_requests_repeated", monkeypatch)

    async def main(on: Wire) -> None:
        async with server.connected(server.url(env, on.endpoint)) as connection:
            name = await made(connection)
            on.rule("PutItem", Fate.LOSE)
            before = len(on.seen("PutItem"))
            with pytest.raises(ConditionRefused):
                await connection.call("PutItem", **put(name, "new", ConditionExpression=NEW))
            assert len(on.seen("PutItem")) == before + 2
            assert await connection.call("GetItem", TableName=name, Key=NEW_KEY) == {"Item": NEW_KEY}

    with wire(server.endpoint()) as on:
        asyncio.run(main(on))


def test_a_request_without_a_server_was_never_sent() -> None:
    async def main() -> None:
        for endpoint in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
            if "invalid" in endpoint:
                os.environ.setdefault("AWS_ACCESS_KEY_ID", "AKID")
                os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "secret")
            async with server.connected(f"dynamodb://local/test?endpoint={endpoint}") as connection:
                with pytest.raises(Away) as found:
                    await connection.call("PutItem", **put("test-runs", "new"))
                assert not found.value.sent

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nwhat",
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwhat",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\nx-amz-crc32: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 503 Slow\r\ncontent-length: 41\r\n\r\n" + b'{"__type":"a#ServiceUnavailable: b","x":1}'[:41],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_an_answer_of_another_server_says_nothing_about_the_request(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def main() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening, server.connected(f"dynamodb://local/test?endpoint=http://127.0.0.1:{port}") as connection:
            with pytest.raises(Away) as found:
                await connection.call("PutItem", **put("test-runs", "new"))
            assert found.value.sent

    asyncio.run(main())


CANCELLED = "TransactionCanceledException"


@pytest.mark.parametrize(
    ("code", "reasons", "kind"),
    [
        ("ConditionalCheckFailedException", [], ConditionRefused),
        ("TransactionConflictException", [], Conflicted),
        ("TransactionInProgressException", [], Conflicted),
        ("ProvisionedThroughputExceededException", [], Throttled),
        ("RequestLimitExceeded", [], Throttled),
        ("ThrottlingException", [], Throttled),
        ("LimitExceededException", [], Throttled),
        ("ValidationException", [], Rejected),
        ("ItemCollectionSizeLimitExceededException", [], Rejected),
        ("AccessDeniedException", [], Unusable),
        ("UnrecognizedClientException", [], Unusable),
        ("ExpiredTokenException", [], Unusable),
        (CANCELLED, ["None", "TransactionConflict", "ConditionalCheckFailed"], ConditionRefused),
        (CANCELLED, ["None", "TransactionConflict"], Conflicted),
        (CANCELLED, ["TransactionConflict", "ThrottlingError"], Throttled),
        (CANCELLED, ["ProvisionedThroughputExceeded", "None"], Throttled),
        (CANCELLED, ["ValidationError", "TransactionConflict"], Rejected),
        (CANCELLED, ["ItemCollectionSizeLimitExceeded"], Rejected),
        (CANCELLED, ["None", "AccessDenied"], Unusable),
        (CANCELLED, ["None", "ACodeOfTheFuture"], Throttled),
        (CANCELLED, [], Throttled),
    ],
)
def test_each_code_of_the_service_has_a_meaning(code: str, reasons: list[str], kind: type[Exception]) -> None:
    error = refused(code, "the words", tuple((each, "why") for each in reasons))
    assert type(error) is kind
    if isinstance(error, ConditionRefused):
        assert error.reasons == (tuple(reasons) or ("ConditionalCheckFailed",))


# --- measures ----------------------------------------------------------------------------------
def test_answers_bound_the_difference_of_the_clocks(env: str) -> None:
    async def main(on: Wire) -> None:
        for ahead_s in (0, 30, -30):
            on.date_ahead_s = ahead_s
            async with server.connected(server.url(env, on.endpoint)) as connection:
                assert connection.clock_difference() is None
                with pytest.raises(Unusable):
                    await connection.call("DescribeTable", TableName=f"{env}-runs")
                bounds = connection.clock_difference()
                assert bounds is not None
                low, high = bounds
                assert low <= ahead_s * 1000 <= high and high - low >= 1000

    with wire(server.endpoint()) as on:
        asyncio.run(main(on))


def test_more_answers_narrow_the_bounds_and_a_step_of_a_clock_is_forgotten() -> None:
    # The service is 300 ms ahead: its second 10 begins at 9,700 of this clock.
    ten, eleven = "Thu, 01 Jan 1970 00:00:10 GMT", "Thu, 01 Jan 1970 00:00:11 GMT"
    clocks = ClockDifference()
    clocks.add(9_800, 9_810, None)
    clocks.add(9_800, 9_810, "no date")
    assert clocks.bounds() is None
    clocks.add(9_800, 9_810, ten)
    assert clocks.bounds() == (190, 1_200)
    clocks.add(10_650, 10_690, ten)
    assert clocks.bounds() == (190, 350)
    clocks.add(10_710, 10_720, eleven)
    assert clocks.bounds() == (280, 350)
    clocks.add(70_000, 70_010, "Thu, 01 Jan 1970 00:01:10 GMT")  # another window begins, the last one counts
    assert clocks.bounds() == (280, 350)
    clocks.add(20_000, 20_010, "Thu, 01 Jan 1970 00:00:10 GMT")  # this machine's clock was set
    assert clocks.bounds() == (-10_010, -9_000)
