"""The paper's chain on SmolLM2-135M, a real language model that two cores can train: school word problems."""
