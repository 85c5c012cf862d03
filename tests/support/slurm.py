"""A Slurm of our own on this machine, one node, in a temporary folder, for as long as the tests run.

In: Debian's `slurm-wlm` and `munge`, without which the test is skipped. Out: a cluster that takes batch jobs. It is run
by the user of the tests, without accounting and cgroups; the node claims more CPUs and memory than it may have, so that
a pipeline's own sizes fit. A task that is put back into the queue would wait two minutes; here an operator lets it
begin at once.
"""

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.ports import free_ports
from support.requirements import SLURM, absent

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "munged")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
WAIT = 60
SETTLED = 5
"""Seconds until a task that was put back may begin: what is left of its first try must have ended, or its exit code
would be taken for that of the second."""

_SETTINGS = """\
ClusterName=spanloom
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=600
MaxArraySize=1024
KillWait=1
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=100000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Job:
    """A task as Slurm shows it: its state, exit code and how often it was put back into the queue."""

    name: str
    index: int | None
    state: str
    exit_code: int
    restarts: int


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _PATH}

    def run(self, *words: object, **environment: str) -> str:
        process = subprocess.run(
            list(map(str, words)),
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise RuntimeError(f"{words[0]} failed: {process.stderr}")
        return process.stdout

    def jobs(self) -> list[Job]:
        """All tasks that were submitted, by their order."""
        tasks = []
        for line in self.run("scontrol", "show", "job", "--oneliner").splitlines():
            facts = dict(word.partition("=")[::2] for word in line.split())
            if "JobName" not in facts:
                continue
            index = facts.get("ArrayTaskId", "")
            tasks.append(
                Job(
                    name=facts["JobName"].removeprefix("spanloom-"),
                    index=int(index) if index.isdecimal() else None,
                    state=facts["JobState"],
                    exit_code=int(facts["ExitCode"].partition(":")[0]),
                    restarts=int(facts["Restarts"]),
                )
            )
        return tasks

    def wait(self, seconds: float) -> list[Job]:
        """The tasks, when none is waiting or running. Raises TimeoutError."""
        end = time.monotonic() + seconds
        put_back: dict[str, float] = {}
        while waiting := self.run("squeue", "--noheader", "--format=%A %r").split("\n")[:-1]:
            for job, reason in (line.split(maxsplit=1) for line in waiting):
                if reason != "BeginTime":
                    put_back.pop(job, None)
                elif time.monotonic() - put_back.setdefault(job, time.monotonic()) > SETTLED:
                    with suppress(RuntimeError):  # it may have begun meanwhile
                        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")
            if time.monotonic() > end:
                raise TimeoutError(self.run("squeue"))
            time.sleep(0.5)
        return self.jobs()


@contextmanager
def slurm_cluster() -> Iterator[Slurm]:
    """A cluster that ends with the block."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]:
        absent(SLURM, f"there is no {missing[0]}")
    with ExitStack() as stack:
        # Sockets have short paths, and munged asks for folders that others cannot write to.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spanloom-slurm-", dir="/tmp")))
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        controller, node = free_ports(2)
        (folder / "slurm.conf").write_text(
            _SETTINGS.format(folder=folder, host=host, user=getpass.getuser(), controller=controller, node=node)
        )
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        cluster = Slurm(folder)

        def start(*words: object) -> None:
            log = stack.enter_context((folder / "daemons.log").open("ab"))
            process = subprocess.Popen(
                list(map(str, words)), env={**os.environ, **cluster.environment}, stdout=log, stderr=log
            )
            stack.callback(process.wait, WAIT)
            stack.callback(process.terminate)

        start(
            *("munged", "--foreground", "--force", "--socket", folder / "munge.socket"),
            *("--key-file", folder / "munge.key", "--pid-file", folder / "munge.pid"),
            *("--log-file", folder / "munge.log", "--seed-file", folder / "munge.seed"),
        )
        start("slurmctld", "-D", "-i")
        start("slurmd", "-D", "-N", host)
        _await_node(cluster)
        yield cluster


def _await_node(cluster: Slurm) -> None:
    end = time.monotonic() + WAIT
    while True:
        try:
            if "idle" in cluster.run("sinfo", "--noheader", "--format=%T"):
                return
        except RuntimeError:
            pass
        if time.monotonic() > end:
            logs = "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in sorted(cluster.folder.glob("*.log")))
            raise TimeoutError(f"Slurm did not start:\n{logs}")
        time.sleep(0.2)
