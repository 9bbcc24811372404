"""What all parts of tracer use: version, folder, C++ extension, locks, and lines on stderr."""
