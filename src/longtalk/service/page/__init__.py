"""The web page: static files, and signing in."""
