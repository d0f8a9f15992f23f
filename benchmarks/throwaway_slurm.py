"""A Slurm of its own in a folder: a `slurmctld` and a `slurmd` for each pretended node, on free ports of this machine.

It neither reads nor touches a Slurm that is installed here: every command is given the `slurm.conf` of the folder. GPUs
are empty files that `gres.conf` names. Written for Slurm 22.05, and needs no munge and no database.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo")
_CONF = """\
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
SlurmdParameters=config_overrides
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SchedulerType=sched/backfill
"""
_START_S = 30.0


def missing_programs() -> list[str]:
    """Return the programs of Slurm that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


class ThrowawaySlurm:
    """A Slurm that runs inside a `with` block, its files in an empty folder, and is gone behind it.

    A node has as many CPUs as GPUs; `conf` are lines of slurm.conf: how it orders and starts jobs, and its partitions.
    `environment`: variables with which the commands of Slurm find it.
    """

    def __init__(self, folder: Path, nodes: int, gpus: int, conf: Sequence[str]) -> None:
        self._folder, self._nodes, self._gpus, self._conf = folder, nodes, gpus, conf
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "PATH": _path(),
            "SLURM_CONF": str(folder / "slurm.conf"),
            "SLURM_TIME_FORMAT": "%s",
        }

    def __enter__(self) -> ThrowawaySlurm:
        self._write_files()
        try:
            self._start("slurmctld", "-D", "-i")
            for node in range(self._nodes):
                self._start("slurmd", "-D", "-N", f"n{node}")
            self._await_nodes()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def call(self, *command: str) -> str:
        """Return what a command of Slurm prints, with times in seconds of the epoch."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self) -> dict[str, dict[str, str]]:
        """Return the fields of `scontrol show job`, by the name of the job."""
        text = self.call("scontrol", "-o", "show", "jobs")
        found = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
        return {one["JobName"]: one for one in found if "JobName" in one}

    def restart_controller(self) -> None:
        """End `slurmctld` and start it again, from the state that it saved."""
        self._daemons[0].terminate()
        self._daemons.pop(0).wait(30)
        self._start("slurmctld", "-D")
        self._daemons.insert(0, self._daemons.pop())
        self._await(lambda: self.call("sinfo", "-h") != "")

    def _write_files(self) -> None:
        with ExitStack() as stack:
            taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(self._nodes + 1)]
            ports = [one.getsockname()[1] for one in taken]
        host, folder = socket.gethostname().split(".")[0], self._folder
        text = _CONF.format(host=host, port=ports[0], user=getpass.getuser(), folder=folder)
        nodes = [
            f"NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[node + 1]} CPUs={self._gpus}"
            f" Gres=gpu:{self._gpus}"
            for node in range(self._nodes)
        ]
        (folder / "slurm.conf").write_text(text + "".join(f"{line}\n" for line in (*nodes, *self._conf)))
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{self._gpus - 1}]\n")
        for name in ("state", *(f"n{node}" for node in range(self._nodes))):
            (folder / name).mkdir()
        for gpu in range(self._gpus):
            (folder / f"gpu{gpu}").touch()

    def _start(self, *command: str) -> None:
        with (self._folder / "output.txt").open("ab") as output:
            one = subprocess.Popen(command, env=self.environment, stdout=output, stderr=output, start_new_session=True)
        self._daemons.append(one)

    def _await_nodes(self) -> None:
        def are_idle() -> bool:
            states = self.call("sinfo", "-h", "-N", "-o", "%N %T").split()[1::2]
            return len(states) == self._nodes and set(states) == {"idle"}

        self._await(are_idle)

    def _await(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; while `slurmctld` does not listen yet, it is not."""
        until = time.monotonic() + _START_S
        while True:
            with suppress(RuntimeError):
                if is_so():
                    return
            if time.monotonic() > until or any(one.poll() is not None for one in self._daemons):
                last = (self._folder / "output.txt").read_text(errors="replace").splitlines()[-5:]
                raise RuntimeError("\n".join(("Slurm did not start; its last lines:", *last)))
            time.sleep(0.2)

    def _stop(self) -> None:
        for command in (("scancel", f"--user={getpass.getuser()}"), ("scontrol", "shutdown")):
            if any(one.poll() is None for one in self._daemons):
                subprocess.run(command, env=self.environment, capture_output=True, timeout=30, check=False)
                time.sleep(1)
        for one in self._daemons:
            one.terminate()
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
