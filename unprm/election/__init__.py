"""Elections: candidates in, elected answers out, by any of the votes in `unprm.votes`."""
