"""What survives SIGKILL, a torn log, a second server and SIGTERM."""
