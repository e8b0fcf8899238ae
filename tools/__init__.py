"""What is run by hand on a checkout, and by no user."""
