"""The server's settings: each is an option (`--max-solutions`), a variable (`UNPRM_MAX_SOLUTIONS`) and a name in the
file of `--config` (`max-solutions`).

The environment is read here and nowhere else. Options override variables, which override the file; unknown ones of any
kind are errors.
Variables that Kubernetes sets in a container for a Service whose name is or begins with unprm are ignored.
"""

import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from unprm.commands import PREFIX, SettingsInvalid
from unprm.engines import uncertainty
from unprm.models.options import JUDGE, MEMORY, Address, EngineOptions, JudgeOptions, LoadModelRequest, ModelOptions
from unprm.votes.registry import Strategy
from unprm.wire import MAX_SOLUTIONS

_OF_OTHERS = re.compile(
    r"UNPRM_(CLIENT_.*|(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT=(tcp|udp|sctp)://.*|"
    r"PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=.*))",
    re.IGNORECASE | re.DOTALL,
)
"""Matches NAME=VALUE of the client's variables, and of those by which Kubernetes describes a Service to a container:
UNPRM_SERVICE_HOST, UNPRM_PORT=tcp://10.0.0.11:80, UNPRM_PORT_80_TCP_ADDR and the like."""


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Served(BaseModel):
    """The options that `--help` lists first."""

    model: list[str] = Field(
        default=["unprm-mini"],
        description="Embedded model, hub name, path, judge or uncertainty; the base with --adapter. Several: "
        "NAME=MODEL each.",
    )


class Settings(EngineOptions, JudgeOptions, ModelOptions, _Served):
    """Of a server."""

    model_config = ConfigDict(frozen=True)

    config: FilePath | None = Field(
        default=None, description="Settings file, keyed by option names: TOML, or YAML if its name ends in .yaml."
    )
    vote_calibration: FilePath | None = Field(
        default=None, description="Basis of `risk` in a vote: a file made by `unprm evaluate calibrate-votes`."
    )
    host: list[str] = Field(
        default=["127.0.0.1"],
        min_length=1,
        description="Address to listen on; 0.0.0.0 for all networks, :: also for IPv6. Repeat, or use commas.",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Bearer token that callers must send. As an option it is visible to other users of the machine.",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="File with a line NAME KEY [TOKENS PER MINUTE] for each caller; read again when it changes.",
    )
    admin_key: SecretStr | None = Field(
        default=None, min_length=1, description="Bearer token for /admin/models; without it, the route does not exist."
    )
    share_caches: bool = Field(
        default=False,
        description="Share caches among callers, which response times reveal; by default each caller has its own.",
    )
    open_metrics: bool = Field(default=False, description="Allow reading /metrics without a key.")
    max_solutions: int = Field(default=MAX_SOLUTIONS, ge=1, le=MAX_SOLUTIONS, description="Solutions per request.")
    max_steps: int = Field(default=1024, ge=1, description="Steps per solution.")
    max_body_bytes: int = Field(default=8 * 2**20, ge=1, description="Largest request body.")
    max_queued_tokens: int = Field(
        default=1_048_576, ge=1, description="Tokens that may wait, at most half of them one caller's; others get 429."
    )
    max_request_seconds: Seconds = Field(
        default=60.0, description="Time limit of a request; X-Request-Timeout may lower it."
    )
    max_batch_seconds: Seconds = Field(
        default=300.0,
        description="Time limit of a batch; beyond it the model counts as hung, and the server exits with status 1.",
    )
    equivalence_deadline: Seconds = Field(default=2.0, description="CPU seconds for comparing a request's answers.")
    drain_seconds: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Time for running requests to finish after SIGTERM. Default: the longest that a request may take.",
    )
    upstream_url: Address | None = Field(
        default=None,
        description="Server with OpenAI's chat API that /v1/chat/completions samples from; without it, no such route.",
    )
    upstream_key: SecretStr | None = Field(default=None, min_length=1, description="API key of the upstream.")
    escalate_url: Address | None = Field(
        default=None, description="Second upstream, for answers that are not accepted at a request's risk."
    )
    escalate_key: SecretStr | None = Field(default=None, min_length=1, description="API key of the second upstream.")
    escalate_model: str | None = Field(
        default=None, min_length=1, description="Model to ask there. Default: the request's."
    )
    gateway_strategy: Strategy | None = Field(
        default=None,
        description="Vote of chat completions that name none. Default: wrf; majority where tools may be called, the "
        "conversation is not text, or a demonstration would score what is outside its domain.",
    )
    gateway_max_tokens: int = Field(
        default=8192, ge=1, description="Maximum tokens of a candidate where the request sets no limit."
    )
    gateway_budget: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SOLUTIONS,
        description="Maximum number of candidates per chat completion, and the default. Without it the default is 8, "
        "and the maximum that of solutions.",
    )
    gateway_stable: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="Default of `stable`: a chat completion stops sampling once the vote won't change with at least "
        "this probability.",
    )
    gateway_seconds: Seconds = Field(default=600.0, description="Time limit of a chat completion.")
    journal: Path | None = Field(
        default=None, description="SQLite file to log requests and responses to, callers' texts included."
    )
    journal_mb: float = Field(
        default=1024.0,
        ge=1,
        allow_inf_nan=False,
        description="MiB of the journal; the oldest entries are deleted first.",
    )
    ssl_certfile: Path | None = Field(default=None, description="Certificate (PEM) for HTTPS.")
    ssl_keyfile: Path | None = Field(default=None, description="Private key (PEM), if not in the certificate file.")
    otlp_endpoint: Address | None = Field(
        default=None, description="OpenTelemetry collector for traces (OTLP over HTTP)."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level logged.")
    log_format: Literal["json", "text"] = Field(default="text", description="json: one object per line.")

    @field_validator("model", "host", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> Self:
        named = self.models()
        if (self.judge_url is None) == any(request.model == JUDGE for request in named.values()):
            raise ValueError(
                "--model judge and --judge-url go together: the one names the judge's server for the other"
            )
        if len(self.model) > 1:
            if "" in named or len(named) < len(self.model):
                raise ValueError("several models are each given as NAME=MODEL, with different names")
            if self.engine == "remote":
                raise ValueError("--engine remote goes with a single --model: the server at --url serves one")
            if any(getattr(self, name) is not None for name in ModelOptions.model_fields):
                options = ", ".join(f"--{name.replace('_', '-')}" for name in ModelOptions.model_fields)
                raise ValueError(f"{options} go with a single --model; several are each a PRM's directory or hub name")
        return self

    @property
    def memory_of_each(self) -> float:
        """Fraction of a GPU's memory that each model takes: by default an equal share, where one is kept for a model
        that is loaded beside the others."""
        served = sum(request.model not in (JUDGE, uncertainty.NAME) for request in self.models().values())
        return self.memory or MEMORY / max(1, served + (self.admin_key is not None))

    @property
    def max_candidates(self) -> int:
        """Maximum number of candidates of a chat completion."""
        return self.gateway_budget or self.max_solutions

    @property
    def max_drain_seconds(self) -> float:
        """Maximum time for running requests to finish."""
        if self.drain_seconds is not None:
            return self.drain_seconds
        return self.max_request_seconds if self.upstream_url is None else self.gateway_seconds

    def models(self) -> dict[str, LoadModelRequest]:
        """The models to serve, by name; the name of a single one may be empty."""
        options = self.model_dump(include={*ModelOptions.model_fields, *JudgeOptions.model_fields})
        split = [spec.rpartition("=") for spec in self.model]
        return {name: LoadModelRequest(name=name or "model", model=model, **options) for name, _, model in split}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Takes what is given by name, then the environment, then the file of `config`. Raises `SettingsInvalid`."""
        values = {**_from_environment(cls.model_fields), **given}
        try:
            return cls.model_validate(_from_file(values.get("config")) | values)
        except ValidationError as error:
            # without the values: a rejected one may be the key
            details = error.errors(include_input=False)
            problems = [
                f"{e['loc'][0] if e['loc'] else 'settings'}: {e['msg'].removeprefix('Value error, ')}" for e in details
            ]
            raise SettingsInvalid("\n".join(problems)) from None


def _from_environment(known: Collection[str]) -> dict[str, Any]:
    """The values of variables by field. Raises `SettingsInvalid` for variables of fields that are not `known`."""
    found, unknown = {}, []
    for name, value in os.environ.items():
        variable = name.upper()
        if not variable.startswith(PREFIX) or _OF_OTHERS.fullmatch(f"{variable}={value}"):
            continue
        field = variable.removeprefix(PREFIX).lower()
        found[field] = value
        if field not in known:
            unknown.append(name)
    if unknown:
        raise SettingsInvalid(f"unknown variables in the environment: {', '.join(sorted(unknown))}")
    return found


def _from_file(named: str | None) -> dict[str, Any]:
    """The settings of a file; none if there is no such file, which the validation of `config` reports. Raises
    `SettingsInvalid` if it has another form."""
    if named is None or not (file := Path(named)).is_file():
        return {}
    parse: Callable[[str], Any] = tomllib.loads
    if file.suffix in (".yaml", ".yml"):
        import yaml  # takes long, and few need it

        parse = yaml.safe_load
    try:
        settings = dict(parse(file.read_text("utf-8-sig")) or {})
    except Exception as error:  # each parser has its own; none of their messages is shown, which may quote a key
        raise SettingsInvalid(f"config: {named} can't be read ({type(error).__name__})") from None
    if "config" in settings:
        raise SettingsInvalid("config: a file can't name another")
    return {name.replace("-", "_"): value for name, value in settings.items()}
