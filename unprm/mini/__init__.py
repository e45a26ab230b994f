"""The embedded model `unprm-mini`: its problem domain with an exact step checker, its weights and its card."""

from pathlib import Path

NAME = "unprm-mini"
BASE = Path(__file__).parent / "weights" / "base"
"""The reasoner: a causal language model that solves the domain's problems, and the base of the PRM."""
ADAPTER = Path(__file__).parent / "weights" / "adapter"
"""The PRM: a LoRA adapter for the reasoner."""
