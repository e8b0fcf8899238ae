"""Tables: each batch once, whatever happens in between."""
