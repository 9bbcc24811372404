"""A trace in a REPL and in a notebook."""
