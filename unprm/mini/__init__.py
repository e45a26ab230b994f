"""The embedded model `unprm-mini`: its problem domain, its weights and its card."""

from pathlib import Path

NAME = "unprm-mini"
ROLLOUTS = "unprm-mini-rollouts"
_WEIGHTS = Path(__file__).parent / "weights"
BASE = _WEIGHTS / "base"
"""The generator: a causal language model that solves the domain's problems, and the base of the PRMs."""
ADAPTER = _WEIGHTS / "adapter"
"""The PRM: a LoRA adapter for the generator, trained on labels of the exact checker."""
ADAPTERS = {NAME: ADAPTER, ROLLOUTS: _WEIGHTS / "adapter-rollouts"}
"""The PRM, and one trained on labels from the generator's own rollouts, by name."""
KNOWLEDGE = "its 5 million parameters know one small domain, word problems over the integers in set phrases"
"""The notice shown with the scores of both; `domain.knows` decides which problems these are."""
