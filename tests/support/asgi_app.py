"""
An app with Tailrace mounted under a path, for uvicorn to run; `streams` is Tailrace alone.

`create_app()` takes its settings from the TAILRACE_* environment variables.
"""

from fastapi import FastAPI

from tailrace.asgi import create_app

streams = create_app()
app = FastAPI(lifespan=streams.lifespan)
app.mount("/mounted", streams)
