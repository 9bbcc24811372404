"""For all tests."""

from __future__ import annotations

import signal

# A command that a shell runs in the background ignores Ctrl-C, and so does all that the tests start: those
# that send it would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
