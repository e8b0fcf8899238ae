"""Which HTTP library should the client use?"""
