"""The ground: keys, errors, the protocol, files that are read again when they change."""
