"""The server on a Ray cluster: replicas with an engine each, behind Ray Serve's proxies."""
