"""The gateway before a real server of vLLM, with the embedded reasoner."""

from collections.abc import Iterator

import openai
import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")


from tests.server.harness import Running, serving
from tests.vllm.problems import PROBLEM
from unprm import mini
from unprm.models.load import load_engine

# what vLLM and PyTorch warn of in their own code
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("reasoner")]


@pytest.fixture(scope="module")
def gateway(reasoner: str) -> Iterator[Running]:
    with serving(load_engine(mini.NAME, device="cpu"), upstream_url=reasoner) as running:
        yield running


def test_an_openai_client_gets_the_elected_answer(gateway: Running) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(
            model=mini.NAME,
            messages=[{"role": "user", "content": PROBLEM}],
            temperature=0.8,
            max_tokens=128,
            extra_body={"unprm": {"strategy": "wrf", "budget": 8, "stable": 1}},
        )
        assert [model.id for model in client.models.list()] == [mini.NAME]
    report = answer.unprm  # type: ignore[attr-defined]
    assert (report["sampled"], report["failures"], report["unscored"]) == (8, [], [])
    assert report["answer"] == "83"
    assert "\\boxed{83}" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 8 * 10


def test_what_vllm_refuses_is_reported(gateway: Running) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        messages = [{"role": "user", "content": PROBLEM}]
        with pytest.raises(openai.NotFoundError, match="other"):
            client.chat.completions.create(model="other", messages=messages)  # type: ignore[arg-type]
        with pytest.raises(openai.BadRequestError, match="the upstream answered 400"):
            client.chat.completions.create(model=mini.NAME, messages=messages, max_tokens=10**6)  # type: ignore[arg-type]
