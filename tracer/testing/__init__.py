"""The pytest plugin: dispatch paths as assertions. Importing it imports neither torch nor polars."""
