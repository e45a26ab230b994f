"""What runs a model: `score(batch)` from token ids to step scores, and the queue in front of it."""
