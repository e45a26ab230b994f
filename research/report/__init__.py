"""The report: one HTML page with figures and tables of annotation and evaluation results."""
