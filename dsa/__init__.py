"""State machines for LLM agents: one Markdown table that is checked, drawn, tested and run."""
