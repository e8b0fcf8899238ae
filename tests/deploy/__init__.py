"""What is in deploy/, exercised as far as a machine without root, Docker and systemd allows."""
