"""The served models: loaded, swapped and unloaded while requests run."""
