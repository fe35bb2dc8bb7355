"""The Python of the data benches' peers. It is not .venv: LOCKSTEP_DATA_PYTHON names one that has them.

    python3 -m venv DIR && DIR/bin/pip install torch==2.13.0 numpy pillow lmdb h5py spdl av opencv-python-headless
    DIR/bin/pip install --no-deps mosaicml-streaming && DIR/bin/pip install brotli python-snappy zstd xxhash catalogue

spdl also wants the shared libraries of FFmpeg 4 to 9, libavdevice included (apt-get install libavdevice59).

A bench that is started with another Python goes on with that one; a peer that is missing is said, and its rows with it.
"""

import importlib.metadata
import os
import sys


def go_on():
    """Starts the script again with the peers' Python, where one is named."""
    python = os.environ.get("LOCKSTEP_DATA_PYTHON")
    if not python or os.path.abspath(python) == os.path.abspath(sys.executable):
        return
    if not os.path.exists(python):
        sys.exit(f"LOCKSTEP_DATA_PYTHON={python} is not there; bench/data_python.py says how to make one")
    os.execv(python, [python, *sys.argv])


def versions(*packages):
    """"torch 2.13.0, h5py 3.16.0"; of what is installed."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} missing")
    return ", ".join(found)
