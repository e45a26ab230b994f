"""Makes the embedded model `unprm-mini` anew from a seed: corpus, reasoner, samples, PRM adapter, figures."""
