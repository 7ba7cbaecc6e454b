"""Login, login link and token file, allowed host names, and security headers."""
