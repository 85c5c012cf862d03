"""Where the tasks of a pipeline run: machine sizes, retries, deadlines, volumes, node pools.

In: a task. Out: the same task, with what Kubernetes and Kubeflow need to know. `Placement` is what is fixed when a
pipeline is compiled; sizes are parameters of the run.
"""

from dataclasses import dataclass

from kfp import dsl, kubernetes

HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class Placement:
    """`pvc` is mounted at `mount` in the steps that touch the dataset root; each of them may then be a local path.

    `node_selector` holds labels, `tolerations` taints (`key=value:effect`) of the nodes that tasks may run on, such as
    those of a spot pool. `scratch` bounds the volume that inputs are staged in.
    """

    pvc: str | None = None
    mount: str = "/mnt/spanloom"
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[tuple[str, str, str], ...] = ()
    scratch: str = "200Gi"

    def place(
        self,
        task: dsl.PipelineTask,
        *,
        cpu: str,
        memory: str,
        hours: int,
        cache: bool,
    ) -> dsl.PipelineTask:
        """Every step is idempotent, so every one is retried: a node of a spot pool goes away without asking."""
        task.set_cpu_request(cpu).set_cpu_limit(cpu)
        task.set_memory_request(memory).set_memory_limit(memory)
        task.set_retry(num_retries=3, backoff_duration="60s", backoff_factor=2, backoff_max_duration="900s")
        task.set_caching_options(cache)
        kubernetes.set_timeout(task, hours * HOUR)
        kubernetes.empty_dir_mount(task, volume_name="scratch", mount_path="/scratch", size_limit=self.scratch)
        if self.pvc:
            kubernetes.mount_pvc(task, pvc_name=self.pvc, mount_path=self.mount)
        for label, value in self.node_selector:
            kubernetes.add_node_selector(task, label, value)
        for key, value, effect in self.tolerations:
            kubernetes.add_toleration(task, key=key, operator="Equal", value=value, effect=effect)
        return task
