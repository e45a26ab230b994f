"""The files of docker/."""

from typing import Any

import yaml

from tests.support import ROOT

DOCKER = ROOT / "docker"


def ray_service() -> dict[str, Any]:
    """The manifest of the service that KubeRay runs."""
    documents = yaml.safe_load_all((DOCKER / "kubernetes" / "ray.yaml").read_text("utf-8"))
    return next(document for document in documents if document["kind"] == "RayService")
