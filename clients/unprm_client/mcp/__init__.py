"""The client's calls as tools of the Model Context Protocol: `unprm mcp`."""
