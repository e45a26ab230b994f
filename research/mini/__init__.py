"""Makes the embedded model `unprm-mini` from a seed: corpus, reasoner, samples, PRM adapter, figures."""
