"""Who may see pages: login, tokens, allowed hosts, and security headers."""
