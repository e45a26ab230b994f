"""HTTP: bodies, keys, errors, the API's description, and the server process."""
