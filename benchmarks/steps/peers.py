"""Workers and their lifes: the parent's side of worker.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

PEERS = ("ours", "eager", "compile", "jax")
TITLES = {
    "ours": "retrograd",
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "jax": "jax.jit",
}
PATIENCE = 600.0  # seconds for one answer
WORKER = "benchmarks.steps.worker"

# What a process holds that is ready to run rows: it has imported what rows need, drawn numbers,
# and run one line of a library, from a warm cache where it has one.
IDLE = {
    "ours": "import retrograd as rg; rg.jit(lambda x: x + 1)(rg.ones(8))",
    "eager": "import torch; torch.ones(8) + 1",
    "compile": "import torch; torch.compile(lambda x: x + 1)(torch.ones(8))",
    "jax": "import jax; jax.jit(lambda x: x + 1)(jax.numpy.ones(8)).block_until_ready()",
}
IMPORTS = {"ours": "retrograd", "eager": "torch", "compile": "torch", "jax": "jax"}
RUNNERS = {"ours": "ours", "eager": "pytorch", "compile": "pytorch", "jax": "jaxes"}
READY = "; import benchmarks.steps.{}, benchmarks.steps.rows as r; r.mlp.Draw().normal(8)"
REPORT = "; import benchmarks.steps.worker as w; w.trimmed(); print(w.status('VmRSS'))"


class Caches:
    """Empty directories for what libraries keep on disk; an environment that names them."""

    def __init__(self) -> None:
        self.where = tempfile.mkdtemp(prefix="bench-")

    def environment(self, fresh: str = "") -> dict[str, str]:
        """`fresh` names caches that nobody else uses."""
        ours = os.path.join(self.where, fresh or "retrograd")
        torchs = os.path.join(self.where, "inductor")
        if fresh:
            torchs = self._copied(torchs, f"inductor-{fresh}")
        return {
            **os.environ,
            "RETROGRAD_CACHE": ours,
            "PYTHONDONTWRITEBYTECODE": "",  # compiled files count, as those of peers do
            "TORCHINDUCTOR_CACHE_DIR": torchs,
            "OMP_NUM_THREADS": "2",
            "MKL_NUM_THREADS": "2",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }

    def _copied(self, cache: str, name: str) -> str:
        """A cache of torch.compile that holds what an idle process left: a compiled header.

        To build that takes 10 s, once on a machine. Kernels of another row must not be there:
        c2 has those of c1's weights.
        """
        own = os.path.join(self.where, name)
        if os.path.isdir(cache) and not os.path.isdir(own):
            shutil.copytree(cache, own)
        return own

    def close(self) -> None:
        """Remove them."""
        shutil.rmtree(self.where, ignore_errors=True)


class Peer:
    """A process that runs one row with one library."""

    def __init__(
        self, name: str, key: str, environment: dict[str, str], module: str = WORKER
    ) -> None:
        self.name = name
        command = [sys.executable, "-m", module, name, key]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self._answer()

    def ask(self, *question: Any) -> dict[str, Any]:
        """One question, one answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        lines = [t for t in self.errors.read().strip().splitlines() if t.strip()]
        said = next((line for line in reversed(lines) if line.strip()), "it ended")
        raise PeerError(f"{TITLES.get(self.name, self.name)}: {said.strip()[:300]}")

    def close(self) -> None:
        """End it."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class PeerError(Exception):
    """What a worker said before it ended."""


def idle(name: str, environment: dict[str, str]) -> dict[str, float]:
    """MB of a process of this library, that has imported it, and that is ready to run rows."""
    found, ready = {}, IDLE[name] + READY.format(RUNNERS[name])
    for what, code in (("import", f"import {IMPORTS[name]}"), ("ready", ready)):
        for _ in range(2):  # the second from a warm cache
            done = subprocess.run(
                [sys.executable, "-c", code + REPORT],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            raise PeerError(f"{name}: {done.stderr.strip().splitlines()[-1][:300]}")
        found[what] = float(done.stdout)
    return found
