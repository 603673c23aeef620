"""Settings: names, defaults, sources, and the source that set each value.

Precedence: the command or caller; `OUTLAST_…` in the environment; a file named by `OUTLAST_…_FILE` (for secrets);
`.env`; `outlast.toml`, or `[tool.outlast]` of `pyproject.toml`; the default. Sections are nested with two underscores:
`OUTLAST_WORKER__CONCURRENCY=200`.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings.exceptions import SettingsError

from outlast.core.durations import milliseconds
from outlast.core.lanes import SCHEDULERS
from outlast.errors import InvalidInput

PREFIX: Final = "OUTLAST_"
NESTED: Final = "__"
FILE: Final = "_FILE"
TOML: Final = "outlast.toml"
PYPROJECT: Final = "pyproject.toml"
DEFAULT_STORE: Final = "sqlite:outlast.db"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7168  # 168 hours
ALONE: Final = frozenset(
    {
        "TRACEBACK",
        "LOG_LEVEL",
        "WORLD",
        "PYTHON",
        "TEST_DYNAMODB",
        "TEST_POSTGRES",
        "BENCH_DIR",
        "BENCH_DYNAMODB",
        "BENCH_POSTGRES",
        "MODEL",
        "MODEL_URL",
        "MODEL_KEY",
    }
)  # not settings, read elsewhere
UNKNOWN_SETTING: Final = "%s matches no setting and is ignored"


def _checked(text: str) -> str:
    milliseconds(text)
    return text


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""A list; in a variable, its items are separated by commas."""
DurationText = Annotated[str, AfterValidator(_checked)]
"""A duration: 500ms, 2s, 10m, 1h30m."""


class Section(BaseModel):
    """A group of settings. An unknown name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkerSettings(Section):
    """Settings of `outlast worker`, and of the worker in `outlast serve`."""

    concurrency: int = Field(default=100, ge=1, le=10_000, description="Maximum number of concurrent runs.")
    name: str = Field(default="", description="Display name of the worker.")
    notify: str = Field(default="", description="URL that receives a small JSON by POST when a run needs a person.")


class LivenessSettings(Section):
    """Durations after which a process counts as dead; the defaults are in core/durations.py."""

    heartbeat_window: DurationText | None = None
    heartbeat_every: DurationText | None = None
    attempt_timeout: DurationText | None = None
    start_budget: DurationText | None = None
    settle_margin: DurationText | None = None
    backoff_ceiling: DurationText | None = None
    checkpoint_write: DurationText | None = None
    drain_grace: DurationText | None = None
    runs_kept: DurationText | None = None
    ledger_kept: DurationText | None = None
    threads_kept: DurationText | None = None


class ServeSettings(Section):
    """Settings of the HTTP service."""

    host: str = Field(default=DEFAULT_HOST, description="Address to bind; any other than loopback requires [auth].")
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65_535, description="Port; 0 chooses a free one.")
    processes: int = Field(default=1, ge=1, le=64, description="Number of processes that serve this port.")
    public_url: str = Field(
        default="",
        pattern=r"^(https?://[A-Za-z0-9._~:/\[\]-]+)?$",
        description="Address at which people reach the service, e.g. https://outlast.example.com; for links.",
    )
    currency: str = Field(
        default="", max_length=8, description="Name or sign of the currency of amounts in the web UI, e.g. EUR."
    )
    proxies: Words = Field(default=(), description="Proxies whose X-Forwarded-For is trusted.")


class AuthSettings(Section):
    """Accepted credentials: tokens of one issuer (JWT), tokens of Outlast, or both. If all are empty, callers are not
    authenticated.

    A claim is named by its dotted path (`realm_access.roles`). A claim whose name contains the dots has precedence.
    """

    issuer: str = Field(default="", description="`iss` of the tokens.")
    audience: str = Field(default="", description="`aud` of the tokens.")
    jwks_url: str = Field(default="", description="URL of the issuer's public keys.")
    algorithms: Words = Field(default=("RS256", "ES256"), description="Accepted signature algorithms.")
    client_id: str = Field(
        default="", description="Client of the issuer by which people sign in to the web UI; unset: by a token only."
    )
    client_secret: SecretStr = Field(default=SecretStr(""), description="Secret of that client; unset: it has none.")
    scopes: Words = Field(default=("openid",), description="Scopes that the sign-in asks for.")
    leeway_s: int = Field(default=30, description="Tolerated clock difference to the issuer in seconds; at most 60.")
    tenant: str = Field(default="", description="Tenant of every token if the issuer names none.")
    tenant_claim: str = Field(default="tenant", description="Claim that names the tenant.")
    roles_claim: str = Field(default="roles", description="Claim that lists the roles.")
    name_claim: str = Field(default="sub", description="Claim that names the caller.")
    installation_claim: str = Field(
        default="", description="Claim that lists roles of the installation; unset: a JWT has none."
    )
    person_claim: str = Field(
        default="", description="Claim that is true for people; unset: a JWT may not decide approvals."
    )
    tokens: SecretStr = Field(
        default=SecretStr(""), description="Lines printed by `outlast token new` (hashes, not tokens)."
    )

    @property
    def signed(self) -> bool:
        """True if tokens of an issuer are accepted."""
        return bool(self.issuer or self.jwks_url or self.audience)

    @property
    def any(self) -> bool:
        """True if callers must authenticate."""
        return self.signed or bool(self.tokens.get_secret_value().strip())


class WebhookSettings(Section):
    """Addresses the dispatcher may reach besides https:// on the internet."""

    allow_private: bool = Field(
        default=False,
        description="Allow this machine and private networks, at any port; http:// requires allow_http too.",
    )
    allow_networks: Words = Field(default=(), description="Allow addresses of these networks, e.g. 10.1.0.0/16.")
    allow_http: bool = Field(default=False, description="Allow http:// besides https://.")


class MetricsSettings(Section):
    """Address at which `worker` and `dispatcher` serve metrics; `serve` uses its own port."""

    host: str = Field(default=DEFAULT_HOST, description="Address to bind; any other than loopback requires a token.")
    port: int | None = Field(default=None, ge=0, le=65_535, description="Port; unset: no metrics, 0: a free port.")
    token: SecretStr = Field(default=SecretStr(""), description="Bearer token that scrapers must send; unset: none.")


class Settings(BaseSettings):
    """All settings. Created by `load`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=NESTED,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        pyproject_toml_table_header=("tool", "outlast"),
    )

    store: str = Field(default=DEFAULT_STORE, description="Store: sqlite:FILE, postgresql://… or dynamodb://…")
    url: str = Field(default="", description="Service that commands use instead of the store.")
    token: SecretStr = Field(default=SecretStr(""), description="Credential for that service.")
    tenant: str = Field(default="default", description="Tenant.")
    scheduler: str = Field(
        default="",
        pattern=f"^({'|'.join(SCHEDULERS)})?$",
        description="Engine that schedules new runs: outlast (the default), temporal or langgraph.",
    )
    module: str = Field(default="", description="Module that declares the workflows.")
    output: str = Field(default="table", pattern="^(table|json|ndjson)$", description="Output format.")
    utc: bool = Field(default=False, description="Print exact times instead of «3m ago».")
    audit: str = Field(
        default="", description="File that records each command and each changing request, one line each."
    )
    worker: WorkerSettings = WorkerSettings()
    liveness: LivenessSettings = LivenessSettings()
    serve: ServeSettings = ServeSettings()
    auth: AuthSettings = AuthSettings()
    webhooks: WebhookSettings = WebhookSettings()
    metrics: MetricsSettings = MetricsSettings()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *args: PydanticBaseSettingsSource, **more: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence."""
        given = next(source for source in (*args, *more.values()) if type(source) is InitSettingsSource)
        return (given, *(source for _, source in _sources(settings_cls)))


class _Variables(EnvSettingsSource):
    """The environment without variables that name files."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name: value for name, value in super()._load_env_vars().items() if not name.endswith(FILE.lower())}


class _Files(EnvSettingsSource):
    """Variables that name a file: `OUTLAST_AUTH__TOKENS_FILE=/run/secrets/tokens` reads the value from it.

    An empty file is an error: a secret that was never written would otherwise disable authentication.
    """

    def _load_env_vars(self) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        for name, path in os.environ.items():
            if name.startswith(PREFIX) and name.endswith(FILE) and path:
                try:
                    text = Path(path).read_text(encoding="utf-8").strip()
                except (OSError, UnicodeDecodeError) as error:
                    why = (isinstance(error, OSError) and error.strerror) or error
                    raise SettingsError(f"{name} names {path}, which cannot be read: {why}") from error
                if not text:
                    raise SettingsError(f"{name} names {path}, which is empty")
                found[name.removesuffix(FILE).lower()] = text
        return found


class SettingValue(NamedTuple):
    """The effective value of one setting."""

    name: str
    """Dotted name as in outlast.toml: worker.concurrency."""
    value: Any
    source: str
    """«environment OUTLAST_STORE», «.env», «outlast.toml», «default», …"""
    about: str


def load(given: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings; `given` has precedence. Raises InvalidInput with every mistake and its source."""
    try:
        return Settings(**dict(given or {}))
    except ValidationError as error:
        problems = [_problem(each, dict(given or {})) for each in error.errors(include_url=False)]
        raise InvalidInput("the settings cannot be used", problems=problems, fix="correct the values") from error
    except (SettingsError, ValueError) as error:
        raise InvalidInput(
            "the settings cannot be read", str(error), "correct the file or the variable it names"
        ) from error


def effective_settings(given: Mapping[str, Any] | None = None) -> Iterator[SettingValue]:
    """Return every setting, its value and its source; `given` has precedence. Raises InvalidInput as `load`."""
    settings = load(given)
    places = [("command line", dict(given or {}))]
    places += [(name, dict(_leaves(source()))) for name, source in _sources(Settings)]
    for name, value, about in _all(settings):
        where = next((_place(place, name) for place, values in places if name in values), "default")
        yield SettingValue(name, value, where, about)


def unknown_variables() -> list[str]:
    """Return variables `OUTLAST_…` that match no setting, because they may be misspelled."""
    known = {_variable(name) for name, _, _ in _all(Settings.model_construct())}
    known |= {f"{name}{FILE}" for name in known} | {PREFIX + name for name in ALONE}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _sources(cls: type[BaseSettings]) -> list[tuple[str, PydanticBaseSettingsSource]]:
    return [
        ("environment", _Variables(cls)),
        ("file", _Files(cls)),
        (".env", DotEnvSettingsSource(cls, env_file=".env", dotenv_filtering="only_existing")),
        (TOML, _toml(TomlConfigSettingsSource, cls, TOML)),
        (PYPROJECT, _toml(PyprojectTomlConfigSettingsSource, cls, PYPROJECT)),
    ]


def _toml(kind: type[TomlConfigSettingsSource], cls: type[BaseSettings], name: str) -> TomlConfigSettingsSource:
    try:
        return kind(cls, Path(name))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise SettingsError(f"{name}: {error}") from error


def _problem(error: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the setting's name, and its error with the source."""
    name = _dotted(error["loc"])
    text = "unknown setting" if error["type"] == "extra_forbidden" else error["msg"].removeprefix("Value error, ")
    place = _sayer(name, given) or _sayer(name.rpartition(".")[0], given)  # a list is set as a whole
    return name, f"{text} ({place})" if place else text


def _sayer(name: str, given: Mapping[str, Any]) -> str:
    """Return the source of a setting; '' if no source sets it."""
    places = [
        ("command line", dict(given)),
        *((place, dict(_leaves(source()))) for place, source in _sources(Settings)),
    ]
    return next((_place(place, name) for place, values in places if name in values), "")


def _place(source: str, name: str) -> str:
    if source == "environment":
        return f"environment {_variable(name)}"
    if source == "file":
        return f"file {os.environ[_variable(name) + FILE]}"
    return source


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", NESTED).upper()


def _dotted(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place))


def _leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _all(model: BaseModel, before: str = "") -> Iterator[tuple[str, Any, str]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _all(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value, field.description or ""
