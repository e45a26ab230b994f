"""From step labels to a served PRM: training, calibration, publishing."""
