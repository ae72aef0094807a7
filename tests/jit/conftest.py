"""What tests of the compiler share: the user's cache is neither read nor written."""

import os

os.environ["RETROGRAD_CACHE"] = "off"
