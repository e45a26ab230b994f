"""IBM's Granite Math PRMs: a chat in which each of the user's turns asks whether the response is correct so far, and
the assistant answers `Y` or `N` (model card of granite-3.3-8b-lora-math-prm, 2025).

The card takes P(Y) among all tokens; here it is P(Y) against N.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

from unprm.formats.chat import Chat, VerdictChatFormat
from unprm.formats.conversations import GRANITE
from unprm.formats.family import Family, KnownModel, Verdicts

NAME = "granite"


def _build(tokenizer: Tokenizer, directory: Path) -> VerdictChatFormat:
    config = json.loads((directory / "config.json").read_text("utf-8"))
    return VerdictChatFormat(tokenizer, NAME, GRANITE, Chat.read(directory), float(config.get("logits_scaling", 1.0)))


FAMILY = Family(
    name=NAME,
    about="Granite 3.3 that answers each step of a chat; P(Y) where the answer is predicted",
    readout=Verdicts,
    architectures=(),
    models=(
        KnownModel("ibm-granite/granite-3.3-8b-lora-math-prm", "Apache-2.0", 8.2),
        KnownModel("ibm-granite/granite-3.3-8b-math-prm-v2", "Apache-2.0", 8.2),
    ),
    build=_build,
    aggregate="mean",
)
