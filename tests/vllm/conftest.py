"""What vLLM and the hub's library read from the environment when they are imported, before anything is."""

import os
import tempfile
from collections.abc import Iterator

import pytest

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_ASSETS_CACHE": tempfile.mkdtemp(prefix="unprm-assets-"),
}
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ '\\n' if not loop.last or add_generation_prompt }}{% endfor %}"
)


@pytest.fixture(scope="session")
def reasoner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of vLLM's server of the embedded reasoner. It takes a while to start: tests that use it are of the
    group of this name, which one process runs."""
    from benchmarks import servers
    from unprm import mini

    template = tmp_path_factory.mktemp("chat") / "template.jinja"
    template.write_text(TEMPLATE, "utf-8")
    options = [f"--chat-template={template}", f"--served-model-name={mini.NAME}", "--dtype=float32"]
    # chunked prefill of seeded requests fails on a CPU
    options += ["--no-enable-chunked-prefill", "--generation-config=vllm"]
    with servers.vllm(mini.BASE, *options) as url:
        yield url
