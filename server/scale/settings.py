"""Settings of a cluster: those of a server, used by every replica, and the number of replicas."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from unprm.commands import SettingsInvalid

from ..settings import Settings, is_secret

RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # sends no usage statistics
    # the controller's interval: at Ray's 0.1 s it takes a tenth of a core from the replicas
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "1",
    # a hung replica does not end its requests when asked to, and waiting callers must learn of its end
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
}
"""Ray's own settings, unless the environment has them; an existing cluster keeps its own."""


class ScaleSettings(Settings):
    """Of a cluster."""

    GROUP: ClassVar = "Replicas"

    replicas: int = Field(default=1, ge=1, description="Minimum number of replicas.")
    max_replicas: int | None = Field(default=None, ge=1, description="Maximum number of replicas. Default: --replicas.")
    replica_cpus: float = Field(default=1.0, gt=0, description="CPU cores per replica.")
    replica_gpus: float = Field(default=0.0, ge=0, description="GPUs per replica.")
    target_ongoing_requests: float = Field(
        default=16.0, gt=0, description="Requests per replica above which another replica is started."
    )
    max_ongoing_requests: int = Field(
        default=256,
        ge=1,
        description="Requests that a replica handles at once; the same number may queue, and the rest get 503.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.upper_replicas < self.replicas:
            raise ValueError(f"--max-replicas is {self.max_replicas}, less than --replicas, {self.replicas}")
        if len(self.host) > 1:
            raise ValueError("Ray's proxies listen at one --host")
        if self.admin_key is not None:
            raise ValueError("--admin-key has no use here: a model is changed by deploying again")
        return self

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """From values by setting name, and the environment. Keys are refused, because Ray logs its configuration.

        Raises `SettingsInvalid`.
        """
        if keys := sorted(name for name in arguments.keys() & cls.model_fields if is_secret(cls.model_fields[name])):
            raise SettingsInvalid(f"not for a configuration, which Ray logs, but for a variable: {', '.join(keys)}")
        return cls.read(arguments)

    @property
    def upper_replicas(self) -> int:
        return self.replicas if self.max_replicas is None else self.max_replicas

    @property
    def memory_of_each(self) -> float:
        """As of a server; by default of the part of a GPU that a replica has."""
        return super().memory_of_each * (min(1.0, self.replica_gpus or 1.0) if self.memory is None else 1.0)
