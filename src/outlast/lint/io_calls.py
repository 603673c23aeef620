"""Functions that act outside of the process, or wait in it, by their dotted names."""

import re
from typing import Final

OUTSIDE: Final = re.compile(
    r"open|io\.open|os\.(system|popen|remove|unlink|rename|replace|mkdir|makedirs|rmdir|kill)"
    r"|asyncio\.(create_subprocess_exec|create_subprocess_shell|open_connection)"
    r"|(shutil|subprocess|socket|ssl|smtplib|ftplib|imaplib|poplib|http\.client|urllib\.request|tempfile)\..*"
    r"|(urllib3|requests|httpx|httpx2|aiohttp|outlast\.http|aiofiles|openai|anthropic|grpc|paramiko)\..*"
    r"|(sqlite3|psycopg|psycopg2|asyncpg|pymongo|redis|boto3|botocore)\..*"
)
QUIET: Final = re.compile(
    r"Timeout|Limits|Headers|URL|QueryParams|ClientTimeout|Session|AsyncClient|Client|ClientSession|FormData"
    r"|gethostname|create_default_context|.*(Error|Exception|Timeout)"
)
"""Last words of names in these packages that only make an object."""
MAKERS: Final = re.compile(
    r"(.*\.)?(Client|AsyncClient|Session|ClientSession|Redis|connect|create_pool|client|resource)"
)
"""Functions that return a client or a connection, whose methods act, too. Those of a response do not."""
FILE_METHODS: Final = frozenset({"read_text", "write_text", "read_bytes", "write_bytes", "unlink", "touch", "rmdir"})
SLEEPS: Final = ("time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep")
WRITING_METHODS: Final = frozenset({"post", "put", "patch", "delete"})
CHANCE_CALLS: Final = re.compile(
    r"datetime\.datetime\.(now|utcnow|today)|datetime\.date\.today|time\.(time|monotonic|perf_counter)(_ns)?"
    r"|uuid\.uuid[14]|os\.(urandom|getpid)|random\.(?!Random\b).*|secrets\..*|itertools\.count|id|hash|object"
)


def acts_outside(called: str) -> bool:
    """Return True for a function or method that reads or changes something outside of this process."""
    *makers, method = called.split("().")
    if not OUTSIDE.fullmatch(called) or QUIET.fullmatch(method.rpartition(".")[2]):
        return False
    return all(MAKERS.fullmatch(each) for each in makers)


def is_chance(called: str) -> bool:
    """Return True for a function whose answer is another one in the next execution."""
    return CHANCE_CALLS.fullmatch(called) is not None
