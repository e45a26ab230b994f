"""RLHFlow's PRMs: a chat in which the user gives the steps and the assistant answers each with `+` or `-`
(Xiong et al., "An Implementation of Generative PRM", 2024)."""

from unprm.formats.chat import Chat, VerdictChatFormat
from unprm.formats.conversations import RLHFLOW
from unprm.formats.family import Family, KnownModel, Verdicts

NAME = "rlhflow"

FAMILY = Family(
    name=NAME,
    about="Llama 3.1 that answers each step of a chat; P(+) where the answer is predicted",
    readout=Verdicts,
    architectures=(),
    models=(
        KnownModel("RLHFlow/Llama3.1-8B-PRM-Mistral-Data", "Llama 3.1 Community", 8.0, 28.4),
        KnownModel("RLHFlow/Llama3.1-8B-PRM-Deepseek-Data", "Llama 3.1 Community", 8.0, 26.6),
    ),
    build=lambda tokenizer, directory: VerdictChatFormat(tokenizer, NAME, RLHFLOW, Chat.read(directory)),
    aggregate="mean",
)
