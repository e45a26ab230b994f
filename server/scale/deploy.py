"""What is deployed to a cluster, and the number of replicas."""

import math
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy, HTTPOptions, RequestRouterConfig

from unprm.types import Engine

from .entrance import Entrance, QuestionRouter
from .replica import QUEUED_TOKENS, Replica
from .settings import ScaleSettings

NAME = "unprm"
_HEALTH = {"health_check_period_s": 5, "health_check_timeout_s": 10}
"""A process that fails three health checks is replaced: with Ray's 30 s it would be too late to send its requests to
another."""


class ByQueuedTokens:
    """Scales by waiting tokens: a replica for every `tokens` of them, removing one replica at a time."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """The number of replicas, which Ray keeps within its bounds."""
        waiting = sum((context.aggregated_metrics or {}).get(QUEUED_TOKENS, {}).values())
        return wanted(waiting, self._tokens, context.current_num_replicas), context.policy_state


def wanted(waiting: float, tokens: int, current: int) -> int:
    """Number of replicas for this many waiting tokens."""
    return max(math.ceil(waiting / tokens), current - 1, 1)


def build(arguments: dict[str, Any]) -> serve.Application:
    """The application for a Ray Serve configuration (`import_path: server.scale.deploy:build`), from settings by name.

    Raises `SettingsInvalid`.
    """
    return application(ScaleSettings.of(arguments))


def deploy(settings: ScaleSettings, engine: Engine | None = None) -> None:
    """Deploys to the connected cluster, or replaces an earlier deployment one replica after the other; returns once it
    serves. `engine` as in `Replica`."""
    # replicas log a line for each request: Ray's would repeat callers' texts, once in each of three places
    logging = {"enable_access_log": False, "log_level": settings.log_level.upper()}
    serve.start(http_options=HTTPOptions(host=settings.host[0], port=settings.port), logging_config=logging)
    serve.run(application(settings, engine), name=NAME, route_prefix="/", logging_config=logging)


def application(settings: ScaleSettings, engine: Engine | None = None) -> serve.Application:
    """Replicas behind entrances. `engine` as in `Replica`."""
    drain = settings.most_drain_seconds
    replicas = serve.deployment(
        Replica,
        name="replica",
        max_ongoing_requests=settings.max_ongoing_requests,
        max_queued_requests=settings.max_ongoing_requests,  # in the entrance, for all replicas
        ray_actor_options={"num_cpus": settings.replica_cpus, "num_gpus": settings.replica_gpus},
        request_router_config=RequestRouterConfig(request_router_class=QuestionRouter),
        graceful_shutdown_timeout_s=drain + 5,
        graceful_shutdown_wait_loop_s=0.5,
        **_HEALTH,
        **_count(settings),
    ).bind(settings, engine)
    # its own work is small, and what it waits for is bounded by the replicas
    return serve.deployment(
        Entrance,
        name="entrance",
        num_replicas=settings.entrances,
        max_ongoing_requests=100_000,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=drain + 5,
        **_HEALTH,
    ).bind(replicas, settings)


def _count(settings: ScaleSettings) -> dict[str, Any]:
    if settings.most_replicas == settings.replicas:
        return {"num_replicas": settings.replicas}
    policy = AutoscalingPolicy(policy_function=ByQueuedTokens, policy_kwargs={"tokens": settings.target_queued_tokens})
    bounds = {"min_replicas": settings.replicas, "max_replicas": settings.most_replicas}
    return {"num_replicas": "auto", "autoscaling_config": AutoscalingConfig(policy=policy, **bounds)}
