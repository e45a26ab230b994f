"""The application of a single server as a Ray Serve deployment: Ray's proxies, router and autoscaling stand before it.
It goes to an existing cluster, or to one started on this machine."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.config import AutoscalingConfig, HTTPOptions

from unprm.types import Engine

from ..app import create_app
from ..models.load import load
from ..observe import Metrics, configure_logs
from ..tracing import configure_traces
from .settings import ScaleSettings

NAME = "unprm"


@serve.ingress()
class Replica:
    """One server. A model that hangs or fails for good ends the process, which Ray then replaces."""

    def __init__(self, settings: ScaleSettings, engine: Engine | None = None) -> None:
        """Loads the models; raises `ModelInvalid`. `engine`: served instead of those that the settings name."""
        configure_logs(settings.log_level, settings.log_format)
        if settings.otlp_endpoint:
            configure_traces(settings.otlp_endpoint)
        self._settings, self._metrics = settings, Metrics()
        self._engines = engine or {
            name: load(settings, request, self._metrics.count_judge_call) for name, request in settings.models().items()
        }

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self._settings, self._engines, lost=lambda: os._exit(1), metrics=self._metrics)


def build(arguments: Mapping[str, Any]) -> serve.Application:
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
    """The replicas. `engine` as in `Replica`."""
    count: dict[str, Any] = {"num_replicas": settings.replicas}
    if settings.upper_replicas > settings.replicas:
        bounds = {"min_replicas": settings.replicas, "max_replicas": settings.upper_replicas}
        scaling = AutoscalingConfig(target_ongoing_requests=settings.target_ongoing_requests, **bounds)
        count = {"num_replicas": "auto", "autoscaling_config": scaling}
    return serve.deployment(
        Replica,
        name="replica",
        max_ongoing_requests=settings.max_ongoing_requests,
        max_queued_requests=settings.max_ongoing_requests,  # in each of Ray's proxies
        ray_actor_options={"num_cpus": settings.replica_cpus, "num_gpus": settings.replica_gpus},
        graceful_shutdown_timeout_s=settings.max_drain_seconds + 5,
        **count,
    ).bind(settings, engine)


def on_cluster(settings: ScaleSettings) -> int:
    """Deploys to the cluster that RAY_ADDRESS names. Returns the exit status: 0, or 1 if that fails."""
    return _deployed(settings, log_to_driver=False)


def on_this_machine(settings: ScaleSettings) -> int:
    """Starts Ray on this machine and serves until a signal. Returns 0, or 1 if deploying fails."""
    _on_signals(lambda: os._exit(0))  # the kernel ends Ray's processes with the one that started them
    # Ray crashes if a signal handler raises while it starts: this thread waits for signals, another starts Ray
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(_deployed, settings, include_dashboard=False).result()
        _on_signals(sys.exit)
        try:
            while status == 0:
                signal.pause()
            return status
        finally:
            serve.shutdown()
            ray.shutdown()


def _deployed(settings: ScaleSettings, **options: bool) -> int:
    """The exit status; `options` are those of `ray.init`."""
    ray.init(**options)
    try:
        deploy(settings)
    except RuntimeError as error:
        print(f"it could not be deployed: {error}", file=sys.stderr)
        return 1
    return 0


def _on_signals(end: Callable[[], NoReturn]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end())
