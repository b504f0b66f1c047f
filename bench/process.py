# SPDX-License-Identifier: MIT
"""A process of torch's that trains the MLP some steps, prints the peak of its memory in MiB, and ends: process.py COUNT."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.cases import networks  # noqa: E402

networks.torch_steps(int(sys.argv[1]))
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:")))
