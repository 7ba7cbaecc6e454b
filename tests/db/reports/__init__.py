"""Reports as Markdown, HTML and LaTeX."""
