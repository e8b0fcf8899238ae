"""
The HTTP server.

    connection -> transports -> service (routing, guard) -> handlers -> engine -> response
                                                               \\-> live <- commits

`service` knows no socket; `wire` and `asgi` are two thin transports that drive it.
"""
