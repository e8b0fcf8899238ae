"""What happens when requests for one stream meet."""
