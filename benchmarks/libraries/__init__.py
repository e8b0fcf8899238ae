"""Which HTTP library should the client stand on?"""
