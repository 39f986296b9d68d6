"""One trainer for every policy."""
