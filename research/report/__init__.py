"""The report: a page in Markdown with tables and figures of annotation and evaluation results."""
