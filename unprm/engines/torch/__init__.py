"""The engine on PyTorch: a tree of shared prefixes, each token run once."""
