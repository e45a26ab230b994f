"""From the options of a model to the engine that runs it."""
