"""
The HTTP server.

    connection -> wire or asgi -> service -> engine -> answer
                                      \\-> live (long-poll, SSE) <- commits

`service` knows no socket; `wire` and `asgi` are two thin transports that drive it.
"""
