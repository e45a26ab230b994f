"""From questions with answers to step labels: samples, selection, searches for errors, data sets."""
