"""`python -m tracer`: the command `tracer`."""

from tracer.cli.app import main

main()
