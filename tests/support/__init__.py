"""What several tests share: real server processes and a raw HTTP client."""
