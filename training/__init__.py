"""The pipeline that makes a process reward model: one stage per file, run as `python -m training STAGE`."""
