"""ActPRM: the layout of Qwen2.5-Math's PRMs, and an ensemble of heads at each `<extra_0>` (Duan et al., "Efficient
Process Reward Model Training via Active Learning", 2025).

The system turn is that of their training and of their example; their run of ProcessBench has another one.
"""

from unprm.formats.family import Ensemble, Family, KnownModel
from unprm.formats.qwen_prm import QwenPrmFormat


class ActPrmFormat(QwenPrmFormat):
    """Raises `ModelInvalid` if the vocabulary lacks the tag or the layout's marks."""

    family = "actprm"
    readout = Ensemble(("score.model.nn1", "score.model.nn2", "score.model.nn_out"))


FAMILY = Family(
    name=ActPrmFormat.family,
    about="Qwen2 with an ensemble of heads, whose mean is read at <extra_0> after each step",
    readout=Ensemble,
    architectures=("Qwen2ForEnsemblePRM",),
    models=(
        KnownModel("sail/ActPRM", "Apache-2.0", 7.6, 75.0),
        KnownModel("sail/ActPRM-X", "Apache-2.0", 7.6, 76.0),
    ),
    build=lambda tokenizer, directory: ActPrmFormat(tokenizer),
)
