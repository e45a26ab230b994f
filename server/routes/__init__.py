"""The routes: what the API and its documentation consist of."""
