"""HTTP/1.1 over raw sockets: broken, hostile and slow clients against a live server."""
