# SPDX-License-Identifier: MIT
"""The bench: run.py BUILD [--case NAME] [--list] measures every case against its peers and prints one table.

Each side of a case is a process of its own (a peer's serves all cases), on one processor unless the case has more threads; after a warm-up
they run in turn, round by round, and the medians count: of the seconds that the process used its processor, with more threads of the seconds
that passed. A ratio is the peer's time over ours. Writes BUILD/bench-work/results.json and, when every case ran,
bench/results.json. Exit status 1: a result was wrong or a side failed. A missed target or a missing peer is in the table.
"""

import argparse
import datetime
import importlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from bench import table                                     # noqa: E402
from bench.case import BEST, AtMost                         # noqa: E402

FAMILIES = ("eager", "loops", "networks", "matmul", "elementwise", "rows", "movement", "memory")
ROUND_SECONDS = 0.08
NATIVE = {"triad": "numpy", "memset": "numpy"}  # yardsticks in C, run from Python


class Failed(Exception):
    """A side that could not run, or whose results were wrong. `peer`: the peer that could not."""

    def __init__(self, text, peer=None):
        super().__init__(text)
        self.peer = peer


def library(peer):
    return NATIVE.get(peer, peer.split()[0])


class Side:
    """One process that runs one side of a case."""

    def __init__(self, name, argv, threads, environment):
        count = str(threads)
        env = dict(os.environ, OMP_NUM_THREADS=count, MKL_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count, **environment)
        env["PYTHONDONTWRITEBYTECODE"] = "1"  # nothing is written beside the sources
        if threads == 1:
            env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
            argv = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] + argv
        self.name = name
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)

    def ask(self, **command):
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"{self.name} ended with status {self.process.wait()}", self.peer())
        reply = json.loads(line)
        if isinstance(reply, dict) and "error" in reply:
            raise Failed(f"{self.name}: {reply['error']}", self.peer())
        return reply

    def peer(self):
        return None if self.name.startswith("ours") else self.name

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


class Bench:
    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.folder = os.path.join(self.build, "bench-work")
        with open(os.path.join(self.folder, "peers.json")) as file:
            self.peers = json.load(file)
        self.native = os.path.join(self.folder, "native.so")
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-O3", "-march=native", "-shared", "-fPIC", "-o", self.native,
                        os.path.join(HERE, "native.c")], check=True)
        self.perilune = os.path.join(self.build, "perilune")
        self.kept = {}  # the peers' processes by name and threads

    def close(self):
        for side in self.kept.values():
            side.process.stdin.close()
        for side in self.kept.values():  # with some, taking a library down takes long
            try:
                side.process.wait(5)
            except subprocess.TimeoutExpired:
                side.process.kill()
                side.process.wait()

    def missing(self, peer):
        if peer.startswith(("ours", "unchecked")):
            return None
        return self.peers[library(peer)].get("missing")

    def store(self, case):
        import numpy
        rng, described = numpy.random.default_rng(1), {}
        for name, make in case.inputs.items():
            array = numpy.ascontiguousarray(make(rng))
            path = os.path.join(self.folder, "inputs", name)
            array.tofile(path)
            described[name] = [path, str(array.dtype), list(array.shape)]
        return described

    def open(self, case, name, inputs):
        """A side that has its inputs and is ready to run."""
        own = case.peers.get(name) if name.startswith("ours") else None
        if name == "ours" or own is not None:
            own = own or {}
            side = Side(name, [self.perilune, os.path.join(HERE, "worker.lua")], case.threads, {})
            engine = dict(case.engine, threads=case.threads)
            engine.update(own.get("engine", {}))
            side.ask(do="open", family=case.family, run=own.get("run", case.run), inputs=inputs, threads=case.threads,
                     params=dict(case.params, **own.get("params", {})), engine=engine)
        else:
            side = self.kept.get((name, case.threads))
            if not side or side.process.poll() is not None:
                side = Side(name, [self.peers[library(name)]["python"], os.path.join(HERE, "peer.py")], case.threads,
                            {"BENCH_NATIVE": self.native, "JAX_PLATFORMS": "cpu"})
                self.kept[name, case.threads] = side
            side.ask(do="open", family=case.family, case=case.name, peer=name, inputs=inputs)
        return side

    def check(self, case, sides):
        """Raises unless all results agree with the reference peer's."""
        import numpy

        def results(side):
            folder = os.path.join(self.folder, "results")
            found = [numpy.fromfile(path, dtype=dtype).reshape(list(shape)) for path, dtype, shape in side.ask(do="check", folder=folder)]
            return found
        reference, compared = None, 0
        for side in [s for s in sides if s.name != "ours"] + [s for s in sides if s.name == "ours"]:
            found = results(side)
            if not found:
                continue
            if reference is None:
                reference = (side.name, found)
                continue
            if len(found) != len(reference[1]):
                raise Failed(f"{side.name} has {len(found)} results, {reference[0]} {len(reference[1])}")
            for k, (a, b) in enumerate(zip(found, reference[1])):
                a = a.astype("float64").reshape(b.shape)
                worst = numpy.max(numpy.abs(a - b) / (case.atol + case.rtol * numpy.abs(b)), initial=0)
                if not worst <= 1:
                    raise Failed(f"result {k + 1} of {side.name} is not {reference[0]}'s (off by {worst:.3g} tolerances)")
            compared += 1
        return compared

    def run_workers(self, case, without):
        names = ["ours"] + [peer for peer in case.peers if peer not in without]
        inputs, sides = self.store(case), []
        try:
            for name in names:
                sides.append(self.open(case, name, inputs))
            compared = self.check(case, sides)
            counts = {}
            for side in sides:  # the first run is the warm-up
                side.ask(do="time", count=1)
                counts[side.name] = 1
                while True:
                    begin = time.perf_counter()
                    side.ask(do="time", count=counts[side.name])
                    passed = time.perf_counter() - begin
                    if passed >= ROUND_SECONDS / 2 or counts[side.name] >= 1e8:
                        break
                    counts[side.name] *= max(2, min(100, int(ROUND_SECONDS / max(passed, 1e-6))))
            samples = {side.name: [] for side in sides}
            for _ in range(case.rounds):
                for side in sides:
                    count = counts[side.name]
                    samples[side.name].append(side.ask(do="time", count=count) / count / case.each)
        finally:
            for side in sides:
                if not side.peer():
                    side.close()
        return samples, compared

    def run_commands(self, case, without):
        samples = {}
        for _ in range(case.rounds):
            for name, (measure, argv) in case.commands.items():
                if name in without:
                    continue
                places = {"luajit": os.environ.get("LUAJIT", "luajit"), "bench": HERE, "build": self.build,
                          "python": self.peers[library(name)]["python"] if library(name) in self.peers else ""}
                samples.setdefault(name, []).append(measured(measure, [a.format(**places) for a in argv]))
        return samples, 0

    def run(self, case):
        row = {"case": case.name, "unit": case.unit, "targets": [str(t) for t in case.targets], "missing": {}}
        for peer in case.commands or case.peers:
            why = self.missing(peer)
            if why:
                row["missing"][peer] = why
        while True:  # once more without a peer that cannot run the case
            try:
                samples, row["compared"] = (self.run_commands if case.commands else self.run_workers)(case, row["missing"])
                break
            except Failed as error:
                if not error.peer:
                    return dict(row, failed=str(error))
                row["missing"][error.peer] = str(error)
        row["samples"] = samples
        row["medians"] = {name: statistics.median(values) for name, values in samples.items()}
        row["ratios"], row["against"], row["met"] = judge(case, row["medians"])
        return row


def measured(measure, argv):
    """Seconds that the command used of the processor, or the number that it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Failed(f"{argv[0]} ended with status {done.returncode}: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
    if measure == "seconds":
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return float(done.stdout.split()[-1])


def judge(case, medians):
    """Per target: the ratio of the medians (for AtMost our median), to which peer, and whether it is met (None: nothing to compare with)."""
    ratios, against, met = [], [], []
    for target in case.targets:
        if isinstance(target, AtMost):
            ratios.append(medians["ours"])
            against.append(None)
            met.append(medians["ours"] <= target.value)
            continue
        peer = target.peer
        if peer == BEST:
            able = [name for name in medians if name != "ours" and name not in NATIVE]
            peer = min(able, key=medians.get) if able else None
        ratio = medians[peer] / medians["ours"] if peer in medians else None
        ratios.append(ratio)
        against.append(peer)
        met.append(None if ratio is None else ratio >= target.factor)
    return ratios, against, met


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()


def cases():
    for family in FAMILIES:
        yield from importlib.import_module("bench.cases." + family).cases()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--case", help="only cases with this name, or with this text in it")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = list(cases())
    if options.case:
        exact = [c for c in chosen if c.name == options.case]
        chosen = exact or [c for c in chosen if options.case in c.name or options.case == c.family]
        if not chosen:
            sys.exit(f"no case has {options.case!r} in its name; --list names them")
    if options.list:
        print("\n".join(c.name for c in chosen))
        return
    bench = Bench(options.build)
    for folder in ("inputs", "results"):
        os.makedirs(os.path.join(bench.folder, folder), exist_ok=True)
    begin, rows = time.time(), []
    for case in chosen:
        rows.append(bench.run(case))
        table.progress(rows[-1])
    bench.close()
    version = subprocess.run([bench.perilune, "--version"], capture_output=True, text=True).stdout.strip()
    report = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "seconds": round(time.time() - begin),
        "cpu": processor(), "cpus": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg(),
        "versions": dict({name: peer.get("version", "missing") for name, peer in bench.peers.items()}, perilune=version,
                         python=platform.python_version()),
        "rows": rows,
    }
    for name in ("inputs", "results"):
        shutil.rmtree(os.path.join(bench.folder, name))
    places = [os.path.join(bench.folder, "results.json")] + ([os.path.join(HERE, "results.json")] if not options.case and os.access(HERE, os.W_OK) else [])
    for place in places:
        with open(place, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    print(table.text(report))
    sys.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
