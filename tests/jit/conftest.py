"""What tests of the compiler share: the user's cache is neither read nor written."""

import os
import signal

os.environ["RETROGRAD_CACHE"] = "off"

# A run in the background of a shell ignores Ctrl-C, and the loops it is to end would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
