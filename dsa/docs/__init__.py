"""Pages of documentation: Markdown files in which blocks about machines are kept fresh, and pages of MkDocs and Sphinx."""
