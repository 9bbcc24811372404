"""What is worth changing in a program, from the recording of its steps."""
