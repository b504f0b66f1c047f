# SPDX-License-Identifier: MIT
"""Finds the peers: peers.py FOLDER writes FOLDER/peers.json, library -> {"python", "version"} or {"missing": why}, and prints the
interpreter that has numpy, which the bench itself needs.

Each library of requirements.txt is installed into a virtual environment in FOLDER; one that cannot be is looked for in Debian's
python3, installed by apt-get where that is allowed. Invariant: every library has an entry, and one that failed says why.
"""

import json
import os
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
DEBIAN = {"numpy": "python3-numpy", "torch": "python3-torch"}
LIBRARIES = ("numpy", "torch", "jax")


def version(python, library):
    """The library's version under that interpreter, or None and the last line of what went wrong."""
    if not os.path.exists(python):
        return None, f"{python} is not there"
    run = subprocess.run([python, "-c", f"import {library}; print({library}.__version__)"], capture_output=True, text=True)
    if run.returncode == 0:
        return run.stdout.strip(), None
    return None, (run.stderr.strip().splitlines() or ["no message"])[-1]


def debian(library):
    """Debian's package of the library: (interpreter, version) or why there is none."""
    python = "/usr/bin/python3"
    if library not in DEBIAN or not os.path.exists(python):
        return None, None, "Debian has no package of it"
    found, why = version(python, library)
    if not found and os.geteuid() == 0:
        install = subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", DEBIAN[library]],
                                 capture_output=True, text=True, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))
        found, why = version(python, library)
        if not found and install.returncode:
            why = f"apt-get install {DEBIAN[library]} failed"
    return python, found, why


def find(folder):
    folder = os.path.abspath(folder)
    python = os.path.join(folder, "venv", "bin", "python")
    if not os.path.exists(python):
        print("bench: making a Python environment", file=sys.stderr)
        try:
            venv.create(os.path.join(folder, "venv"), with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:  # Debian has ensurepip in a package of its own, python3-venv
            print(f"bench: no Python environment: {error}", file=sys.stderr)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    requirements = [line.strip() for line in open(os.path.join(HERE, "requirements.txt")) if line.strip() and line[0] != "#"]
    if os.path.exists(python) and any(version(python, library)[0] is None for library in LIBRARIES):
        print("bench: installing " + ", ".join(requirements), file=sys.stderr)
        if subprocess.run(pip + requirements, capture_output=True).returncode:
            for requirement in requirements:  # together they failed: one may still go
                subprocess.run(pip + [requirement], capture_output=True)
    peers = {}
    for library in LIBRARIES:
        found, why = version(python, library)
        if found:
            peers[library] = {"python": python, "version": found}
            continue
        debians, found, second = debian(library)
        if found:
            peers[library] = {"python": debians, "version": found + " (Debian)"}
        else:
            peers[library] = {"missing": f"{why}; {second}"}
        print(f"bench: {library}: {peers[library]}", file=sys.stderr)
    with open(os.path.join(folder, "peers.json"), "w") as file:
        json.dump(peers, file, indent=1)
    if "missing" in peers["numpy"]:
        sys.exit("bench: numpy makes the inputs and compares the results: " + peers["numpy"]["missing"])
    print(peers["numpy"]["python"])


if __name__ == "__main__":
    find(sys.argv[1])
