"""Engines, which run a model: `score(batch)` maps token ids to step scores; and the queue in front of them."""
