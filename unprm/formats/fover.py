"""FoVer's PRMs: a chat in which the user gives the steps and the assistant answers each with `correct` or `incorrect`
(Kamoi et al., "Efficient PRM Training Data Synthesis via Formal Verification", 2025)."""

from unprm.formats.chat import Chat, VerdictChatFormat
from unprm.formats.conversations import FOVER
from unprm.formats.family import Family, KnownModel, Verdicts

NAME = "fover"

FAMILY = Family(
    name=NAME,
    about="Llama 3.1 or Qwen2.5 that answers each step of a chat; P(correct) where the answer is predicted",
    readout=Verdicts,
    architectures=(),
    models=(
        KnownModel("ryokamoi/Llama-3.1-8B-FoVer-PRM", "Llama 3.1 Community", 8.0),
        KnownModel("ryokamoi/Llama-3.1-8B-FoVer-PRM-2026", "Llama 3.1 Community", 8.0),
        KnownModel("ryokamoi/Qwen-2.5-7B-FoVer-PRM", "Apache-2.0", 7.6),
        KnownModel("ryokamoi/Qwen-2.5-7B-FoVer-PRM-2026", "Apache-2.0", 7.6),
    ),
    build=lambda tokenizer, directory: VerdictChatFormat(tokenizer, NAME, FOVER, Chat.read(directory)),
)
