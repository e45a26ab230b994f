"""The server on a Ray cluster: replicas with an engine each, behind an entrance that routes by question."""
