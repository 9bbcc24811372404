"""Becomes the Python process that is debugged; gdb starts it in its place (exec-wrapper).

Gives it its own standard streams, folder, arguments and environment: gdb or a shell
would change: exactly as they are in launch.json. Run with -I -S, standard library only.
"""

import json
import os
import sys


def main():
    with open(os.path.join(sys.argv[1], "launch.json")) as file:
        request = json.load(file)
    streams = request["streams"]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.chdir(request["folder"])
    # what gdb adds to it is in the environment now; what it has to see is in the file
    os.execve(request["command"][0], request["command"], request["environment"])


main()
