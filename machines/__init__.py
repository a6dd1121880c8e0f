"""The shipped machines: each a table (the truth), its bindings, and a README; `search` is made of policies alone."""
