"""The documentation's commands of vLLM: its own parser takes them, and makes an engine's configuration of them."""

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

import torch

from tests import checkpoints
from tests.commands.blocks import Block, fenced
from tests.commands.world import PRM, REASONERS
from training.prm.publish import merge_adapter
from unprm import mini

# what vLLM and PyTorch warn of in their own code
pytestmark = pytest.mark.filterwarnings("default")

COMMANDS = [(block, words) for block in fenced() for words in block.commands() if words[:2] == ["vllm", "serve"]]
POOLED = {"merged", PRM}
"""The models that are served for their scores."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with small models under the names of those that are served."""
    place = tmp_path_factory.mktemp("models")
    for name in REASONERS:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).symlink_to(mini.BASE)
    checkpoints.write("qwen-prm", place / PRM)
    merge_adapter(mini.NAME, None, place / "merged", torch.float32)
    return place


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 4


@pytest.mark.parametrize(("block", "words"), COMMANDS, ids=lambda value: str(value) if isinstance(value, Block) else "")
def test_a_server_is_configured(block: Block, words: list[str], models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    monkeypatch.chdir(models)
    words = [REASONERS[0] if word == "$model" else word for word in words[1:] if word != "&"]
    parser = FlexibleArgumentParser()
    ServeSubcommand().subparser_init(parser.add_subparsers())
    arguments = parser.parse_args(words)
    arguments.model = arguments.model_tag
    made = AsyncEngineArgs.from_cli_args(arguments).create_engine_config().model_config
    assert made.model == words[1]
    if words[1] in POOLED:
        assert made.runner_type == "pooling"
        assert made.pooler_config.task == "token_classify"
    else:
        assert made.runner_type == "generate"
