"""The blocking client, over the standard library's `http.client`."""
