"""The lab: the paper's study in miniature, with real models: data sets, PRMs, benchmarks, findings, report."""
