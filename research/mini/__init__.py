"""Makes the embedded model `unprm-mini` from a seed: corpus, generator, samples, PRM adapter, figures."""
