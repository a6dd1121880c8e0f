"""Tools of MCP servers: programs of the user's that speak over stdio, started by the run and ended with it."""
