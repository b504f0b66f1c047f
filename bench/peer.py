# SPDX-License-Identifier: MIT
"""Runs one peer of one case after another: a process that reads commands, one JSON object a line, and answers alike.

  {"do": "open", "family", "case", "peer", "inputs": {name: [file, dtype, shape]}, "params"}
  {"do": "check", "folder"}     writes the results there, answers [[file, dtype, shape], ...]
  {"do": "time", "count"}       answers the seconds of `count` runs
"""

import gc
import importlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load(inputs):
    import numpy
    return {name: numpy.fromfile(path, dtype=dtype).reshape(shape) for name, (path, dtype, shape) in inputs.items()}


def store(arrays, folder):
    import numpy
    written = []
    for k, array in enumerate(arrays):
        path = os.path.join(folder, f"peer{k}")
        array = numpy.ascontiguousarray(array)
        array.tofile(path)
        written.append([path, str(array.dtype), list(array.shape)])
    return written


def main():
    replies, loop, results, seconds = os.fdopen(os.dup(1), "w"), None, None, time.perf_counter
    os.dup2(2, 1)  # what libraries print is no reply
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "open":
                loop = results = None  # nothing of the case before may cost this one
                gc.collect()
                module = importlib.import_module("bench.cases." + command["family"])
                case = next(c for c in module.cases() if c.name == command["case"])
                params = dict(case.params, threads=case.threads)
                # one thread: what the process used of its processor; another program that runs meanwhile does not count
                seconds = time.process_time if case.threads == 1 else time.perf_counter
                loop, results = case.peers[command["peer"]](load(command["inputs"]), params)
                reply = True
            elif command["do"] == "check":
                reply = store(results(), command["folder"])
            else:
                begin = seconds()
                own = loop(command["count"])
                reply = own if own is not None else seconds() - begin
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


main()
