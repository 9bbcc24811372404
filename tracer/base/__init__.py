"""What all parts of tracer use: its version and folder, its extension, its locks, its lines on stderr."""
