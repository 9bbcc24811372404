"""Scripted gdb sessions: stops along the dispatch path, in release wheels and in debug builds."""
