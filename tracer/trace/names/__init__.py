"""Names of what a trace holds as numbers: functions, libraries, keys, modules."""
