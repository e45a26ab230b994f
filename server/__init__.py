"""The HTTP server: `create_app(settings, engine)` in app.py, `python -m server` in __main__.py."""
