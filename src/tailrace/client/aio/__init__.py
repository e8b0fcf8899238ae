"""The asynchronous client, over aiohttp."""
