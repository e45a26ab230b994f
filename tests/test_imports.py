"""What programs import before they do their work: the time that a start takes, without a clock."""

import pytest

from tests.support import MODELS, imported

SERVERS = {"fastapi", "starlette", "uvicorn", "httpx", "prometheus_client"}
LOAD = """
import gc, sys
from server.models.load import load
from server.settings import Settings

settings = Settings()
(model,) = settings.models().values()
load(settings, model)
assert gc.isenabled()
assert None not in sys.modules.values()  # what was kept from being imported can be imported again
"""


@pytest.mark.parametrize(
    ("program", "needed", "unneeded"),
    [
        ("unprm", "typer", MODELS | SERVERS | {"pydantic", "rich"}),
        ("server", "pydantic", MODELS | SERVERS | {"rich", "yaml"}),
        ("training", "typer", {"torch", "transformers", "numpy", "datasets"} | SERVERS),
        ("unprm_client", "httpx", MODELS | {"fastapi", "starlette", "uvicorn"}),
    ],
)
def test_help_comes_without_what_the_work_needs(program, needed, unneeded):
    found = imported("-m", program, "--help")
    assert needed in found
    assert not unneeded & found


def test_the_library_waits_with_what_it_needs():
    assert not imported("-c", "import unprm") & (MODELS | SERVERS | {"pydantic"})
    assert not imported("-c", "import unprm; unprm.vote(None, ['\\\\boxed{1}'], 'majority')") & (MODELS | SERVERS)


def test_the_server_answers_before_it_imports_what_models_need():
    found = imported("-c", "import server.serving")
    assert "fastapi" in found
    assert not found & (MODELS | {"httpx"})


def test_a_load_of_the_embedded_model_imports_nothing_for_other_work():
    found = imported("-c", LOAD)
    assert {"torch", "transformers"} <= found
    assert not found & {"datasets", "vllm"}
