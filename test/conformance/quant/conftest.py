"""What the tests of test/python share is found from here."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
