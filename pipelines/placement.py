"""Where the tasks of a pipeline run: machine sizes, retries, deadlines, volumes, node pools, variables.

In: a task. Out: the same task with its settings for Kubernetes and Kubeflow. `Placement` has the settings that are
fixed when a pipeline is compiled; sizes are parameters of the run.
"""

from dataclasses import dataclass

from kfp import dsl, kubernetes

from components.of_task import SIZES

HOUR = 3600


CA_MOUNT = "/etc/spanloom-ca"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """`pvc` is mounted at `mount` in every step, so that the dataset root may be a local path.

    `node_selector` holds labels, `tolerations` taints (key, value, effect) of the nodes that tasks may run on, such as
    those of a spot pool; the value None is any. `scratch` limits the volume for staged inputs: an emptyDir, or with
    `scratch_class` a volume of that storage class with the lifetime of the pod.

    `env` are plain variables. `secret_env` and `config_map_env` come from a Secret or ConfigMap of the namespace: (its
    name, the key in it, the variable). `ca_bundle` is (ConfigMap, key) of a PEM file, mounted in each pod and named in
    AWS_CA_BUNDLE. `pull_secrets` are for the registry. `kueue_queue` and `kueue_priority` are labels of pods.
    """

    pvc: str | None = None
    mount: str = "/mnt/spanloom"
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[tuple[str, str | None, str], ...] = ()
    scratch: str = SIZES["SCRATCH"]
    scratch_class: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    secret_env: tuple[tuple[str, str, str], ...] = ()
    config_map_env: tuple[tuple[str, str, str], ...] = ()
    ca_bundle: tuple[str, str] | None = None
    pull_secrets: tuple[str, ...] = ()
    kueue_queue: str | None = None
    kueue_priority: str | None = None

    def place(
        self,
        task: dsl.PipelineTask,
        *,
        cpu: str,
        memory: str,
        hours: int,
        cache: bool,
        preflight: bool = False,
        accelerator: str = "",
        accelerators: str = "",
    ) -> dsl.PipelineTask:
        """Sets sizes, retries and volumes. Steps are idempotent; the cluster decides which failures it retries.

        `preflight`: the task compares the scratch volume with what the tasks need. `accelerator`: a resource of nodes,
        such as nvidia.com/gpu; `accelerators`: how many of it; both empty: none.
        """
        task.set_cpu_request(cpu).set_cpu_limit(cpu)
        task.set_memory_request(memory).set_memory_limit(memory)
        if accelerator:
            task.set_accelerator_type(accelerator).set_accelerator_limit(accelerators)
        # kfp drops parameters of sizes for a task in a condition, and the condition's graph would lack them.
        task.register_pipeline_channels([size for size in (cpu, memory) if not isinstance(size, str)])
        task.set_retry(num_retries=3, backoff_duration="60s", backoff_factor=2, backoff_max_duration="900s")
        task.set_caching_options(cache)
        kubernetes.set_timeout(task, hours * HOUR)
        self._mount_scratch(task)
        if self.pvc:
            kubernetes.mount_pvc(task, pvc_name=self.pvc, mount_path=self.mount)
        for label, value in self.node_selector:
            kubernetes.add_node_selector(task, label, value)
        for key, value, effect in self.tolerations:
            operator = "Exists" if value is None else "Equal"
            kubernetes.add_toleration(task, key=key, operator=operator, value=value, effect=effect)
        self._set_environment(task)
        if preflight:
            task.set_env_variable("SPANLOOM_SCRATCH_SIZE", self.scratch)
        if self.pull_secrets:
            kubernetes.set_image_pull_secrets(task, list(self.pull_secrets))
        if self.kueue_queue:
            kubernetes.add_pod_label(task, "kueue.x-k8s.io/queue-name", self.kueue_queue)
        if self.kueue_priority:
            kubernetes.add_pod_label(task, "kueue.x-k8s.io/priority-class", self.kueue_priority)
        return task

    def _mount_scratch(self, task: dsl.PipelineTask) -> None:
        if self.scratch_class is None:
            kubernetes.empty_dir_mount(task, volume_name="scratch", mount_path="/scratch", size_limit=self.scratch)
        else:
            kubernetes.add_ephemeral_volume(
                task,
                volume_name="scratch",
                mount_path="/scratch",
                access_modes=["ReadWriteOnce"],
                size=self.scratch,
                storage_class_name=self.scratch_class,
            )

    def _set_environment(self, task: dsl.PipelineTask) -> None:
        for name, value in self.env:
            task.set_env_variable(name, value)
        for secret, key, name in self.secret_env:
            kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env={key: name})
        for config_map, key, name in self.config_map_env:
            kubernetes.use_config_map_as_env(task, config_map_name=config_map, config_map_key_to_env={key: name})
        if self.ca_bundle:
            config_map, key = self.ca_bundle
            kubernetes.use_config_map_as_volume(task, config_map_name=config_map, mount_path=CA_MOUNT)
            task.set_env_variable("AWS_CA_BUNDLE", f"{CA_MOUNT}/{key}")
