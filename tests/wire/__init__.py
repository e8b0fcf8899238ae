"""HTTP/1.1 over raw sockets: malformed, hostile and slow requests to a live server."""
