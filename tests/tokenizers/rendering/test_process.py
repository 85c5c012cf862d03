"""The template process: one for each process, what it may do, how it ends."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from spanloom.errors import SpanloomError
from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError, TemplateRaisedError
from spanloom.tokenizers.rendering import process as client
from spanloom.tokenizers.rendering.process import (
    TemplateDelayError,
    TemplateLimitError,
    TemplateProcess,
    shared_process,
)
from spanloom.tokenizers.rendering.wire import Limits
from spanloom.workers import process_pool

LIMITS = Limits(seconds=1, memory=512 << 20, output=1 << 20)
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
ON_ENDLESS = "{{ messages[0].content }}\n\n{% if messages[0].content == 'endless' %}\n" + ENDLESS + "{% endif %}"
ON_LARGE = "{% if messages[0].content == 'large' %}{{ 'a' * 10**10 }}{% endif %}{{ messages[0].content }}"

Script = Callable[[str], "subprocess.Popen[str]"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def process() -> Iterator[TemplateProcess]:
    process = TemplateProcess(LIMITS)
    yield process
    process.close()


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def pid_of(process: TemplateProcess) -> int:
    assert process.pid is not None
    return process.pid


def is_at_work(pid: int) -> bool:
    """Whether a process is there and has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def has_worked(pid: int) -> bool:
    """Whether a process has used a quarter of a second of CPU, more than its start takes."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK") > 0.25


@pytest.fixture
def script() -> Iterator[Script]:
    """`script(code)`: a Python process with this code, and what every code begins with, in a session of its own."""
    begin = (
        "from spanloom.tokenizers.chat_template import ChatTemplate\n"
        "from spanloom.tokenizers.rendering.process import shared_process\n"
        f"endless = ChatTemplate({ENDLESS!r})\n"
        "print(shared_process().pid, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), client.SECONDS_VARIABLE: "600"}
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", begin + code],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_all_templates_share_one_process(process: TemplateProcess) -> None:
    first = ChatTemplate("{{ messages[0].content }}", process=process)
    pid = pid_of(process)
    others = [ChatTemplate(f"{number}" + "{{ messages[0].content }}", process=process) for number in range(200)]
    assert [other.render(asked("!")) for other in others] == [f"{number}!" for number in range(200)]
    assert first.render(asked("of the first again")) == "of the first again"
    assert process.pid == pid


def test_it_starts_without_libraries_that_take_long_to_import(process: TemplateProcess) -> None:
    ChatTemplate("", process=process)
    mapped = Path(f"/proc/{pid_of(process)}/maps").read_text()
    assert "/python" in mapped
    assert [name for name in ("numpy", "pyarrow", "pydantic", "tokenizers", "torch") if f"/{name}" in mapped] == []


def test_it_may_open_and_write_no_file_and_has_the_limit_of_memory(process: TemplateProcess) -> None:
    ChatTemplate("", process=process)
    lines = Path(f"/proc/{pid_of(process)}/limits").read_text().splitlines()
    limits = {line[:26].strip(): line[26:].split()[:2] for line in lines}
    assert limits["Max address space"] == [str(512 << 20)] * 2
    assert limits["Max open files"] == limits["Max file size"] == limits["Max core file size"] == ["0", "0"]


def test_it_has_four_pipes_and_nothing_that_the_parent_has_open(process: TemplateProcess, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as stream:
        os.set_inheritable(stream.fileno(), True)
        ChatTemplate("", process=process)
    held = [entry.readlink().name for entry in Path(f"/proc/{pid_of(process)}/fd").iterdir()]
    assert len(held) == 4
    assert all(name.startswith("pipe:") for name in held)


def test_it_has_no_secrets_of_the_environment(process: TemplateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("TZ", "UTC")
    ChatTemplate("", process=process)
    held = Path(f"/proc/{pid_of(process)}/environ").read_bytes().split(b"\0")
    assert b"TZ=UTC" in held
    assert {name.partition(b"=")[0].decode() for name in held if name} <= set(client._ENVIRONMENT)


def test_a_deadline_names_file_and_line_and_the_next_rendering_has_another_process(process: TemplateProcess) -> None:
    template = ChatTemplate(ON_ENDLESS, where="mine.jinja", process=process)
    pid = pid_of(process)
    with pytest.raises(TemplateLimitError, match="runs for more than 1 seconds") as error:
        template.render(asked("endless"))
    assert error.value.where == "mine.jinja, line 4"
    assert not is_at_work(pid)
    assert template.render(asked("short")).strip() == "short"
    assert process.pid not in (None, pid)


def test_a_deadline_in_the_middle_of_c_code_has_its_line(process: TemplateProcess) -> None:
    text = "\n\n{% set a = 'a' * 2000000 %}\n{% set b = a.rindex('ab' ~ 'a' * 1000000) %}"
    with pytest.raises(TemplateLimitError, match="runs for more than 1 seconds") as error:
        ChatTemplate(text, where="mine.jinja", process=process).render([])
    assert error.value.where == "mine.jinja, line 4"


def test_memory_has_its_line(process: TemplateProcess) -> None:
    text = "{% macro m(n) %}\n{{ 'a' * n }}\n{% endmacro %}\n\n{{ m(10**10) }}"
    with pytest.raises(TemplateLimitError, match="takes more than 512 MiB of memory") as error:
        ChatTemplate(text, where="mine.jinja", process=process).render([])
    assert error.value.where == "mine.jinja, line 2"


def test_a_delay_is_temporary_where_the_template_has_rendered_before(process: TemplateProcess) -> None:
    template = ChatTemplate(ON_ENDLESS, process=process)
    with pytest.raises(TemplateLimitError) as first:
        template.render(asked("endless"))
    template.render(asked("short"))
    with pytest.raises(TemplateDelayError) as later:
        template.render(asked("endless"))
    assert (first.value.exit_code, later.value.exit_code) == (1, 75)
    assert pickle.loads(pickle.dumps(later.value)).exit_code == 75


def test_memory_is_never_temporary(process: TemplateProcess) -> None:
    template = ChatTemplate(ON_LARGE, process=process)
    template.render(asked("small"))
    with pytest.raises(TemplateLimitError) as error:
        template.render(asked("large"))
    assert error.value.exit_code == 1


def test_no_limit_is_a_refusal(process: TemplateProcess) -> None:
    """Refusals are counted, and a build goes on."""
    with pytest.raises(SpanloomError) as error:
        ChatTemplate("{{ 'a' * 10**10 }}", process=process).render([])
    assert not isinstance(error.value, ChatTemplateError)


def test_a_text_is_bounded_and_a_text_at_the_bound_is_not(process: TemplateProcess) -> None:
    template = ChatTemplate("{{ 'a' * messages[0].count }}", process=process)
    assert template.render([{"count": 1 << 20}]) == "a" * (1 << 20)
    with pytest.raises(TemplateLimitError, match="writes more than 1 MiB of text"):
        template.render([{"count": (1 << 20) + 1}])


def test_what_a_template_says_is_bounded(process: TemplateProcess) -> None:
    with pytest.raises(TemplateRaisedError, match="refuses the messages: aaaa") as error:
        ChatTemplate("{{ raise_exception('a' * 999999) }}", process=process).render([])
    assert len(str(error.value)) < 5000


def test_messages_of_more_than_the_memory_are_a_limit() -> None:
    process = TemplateProcess(Limits(seconds=20, memory=128 << 20))
    try:
        with pytest.raises(TemplateLimitError, match="takes more than 128 MiB of memory"):
            ChatTemplate("{{ messages[0].content }}", process=process).render(asked("a" * (200 << 20)))
    finally:
        process.close()


def test_a_value_of_a_class_that_is_only_here_is_refused(
    process: TemplateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = type("Value", (), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", SimpleNamespace(Value=value))  # type: ignore[misc]
    template = ChatTemplate("{{ messages }}", process=process)
    with pytest.raises(ChatTemplateError, match="a value is of a class that is not there: No module named 'only_here'"):
        template.render([{"content": value()}])
    assert template.render([]) == "[]"


def test_threads_get_their_own_texts(process: TemplateProcess) -> None:
    templates = [ChatTemplate(f"{number}" + ":{{ messages[0].content }}", process=process) for number in range(8)]

    def render(number: int) -> bool:
        text = str(number) * (1 + number % 7 * 20_000)
        return templates[number % 8].render(asked(text)) == f"{number % 8}:{text}"

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(render, range(800)))


def test_a_fork_has_a_process_of_its_own(process: TemplateProcess) -> None:
    template = ChatTemplate("{{ messages[0].content }}", process=process)
    assert template.render(asked("parent")) == "parent"
    here, there = multiprocessing.Pipe()

    def work(end: Connection) -> None:
        end.send((template.render(asked("child")), process.pid))
        process.close()

    worker = multiprocessing.get_context("fork").Process(target=work, args=(there,))
    worker.start()
    text, pid = here.recv()
    worker.join()
    assert (text, worker.exitcode) == ("child", 0)
    assert pid != process.pid
    assert template.render(asked("parent")) == "parent"
    assert not is_at_work(pid)


def test_it_ends_when_its_parent_is_killed_in_the_middle_of_a_rendering(script: Script) -> None:
    parent = script("endless.render([])\n")
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until(lambda: has_worked(pid))
    parent.kill()
    parent.communicate()
    until(lambda: not is_at_work(pid), seconds=5)


def test_it_ends_with_its_parent(script: Script) -> None:
    parent = script("")
    output, _ = parent.communicate(timeout=60)
    assert parent.returncode == 0
    assert not Path(f"/proc/{int(output)}").exists(), "not even a zombie"


def test_it_ends_with_a_worker_of_a_pool() -> None:
    with process_pool(1) as pool:
        pid = pool.result(pool.submit(pid_of_shared), "a rendering")
        assert is_at_work(pid)
    assert not is_at_work(pid)


def pid_of_shared() -> int:
    ChatTemplate("")
    return pid_of(shared_process())


def test_ctrl_c_is_the_parents_and_no_reply_is_left_behind(script: Script) -> None:
    parent = script(
        "try:\n"
        "    endless.render([])\n"
        "except KeyboardInterrupt:\n"
        "    print(shared_process().pid, ChatTemplate('{{ 40 + 2 }}').render([]), flush=True)\n"
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until(lambda: has_worked(pid))
    os.killpg(parent.pid, signal.SIGINT)
    output, _ = parent.communicate(timeout=20)
    assert output.split() == ["None", "42"]
    assert not is_at_work(pid)


def test_ctrl_c_does_not_end_it(process: TemplateProcess) -> None:
    template = ChatTemplate("{{ 40 + 2 }}", process=process)
    os.kill(pid_of(process), signal.SIGINT)
    assert template.render([]) == "42"


def test_an_end_by_the_system_is_said(process: TemplateProcess) -> None:
    template = ChatTemplate("{{ 40 + 2 }}", process=process)
    os.kill(pid_of(process), signal.SIGKILL)
    with pytest.raises(TemplateLimitError, match="its process ended by SIGKILL"):
        template.render([])
    assert template.render([]) == "42"


@pytest.mark.parametrize("python", ["/bin/false", "/no/such/python"])
def test_a_python_that_does_not_start_is_an_error(
    python: str, process: TemplateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(SpanloomError, match="the process that renders chat templates does not start"):
        ChatTemplate("", process=process)


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "inf"])
def test_seconds_that_are_no_number_are_an_error(seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.SECONDS_VARIABLE, seconds)
    with pytest.raises(SpanloomError, match="SPANLOOM_TEMPLATE_SECONDS is no number of seconds"):
        shared_process.__wrapped__()


def test_the_end_of_a_program_does_not_wait_for_a_thread_that_renders(script: Script) -> None:
    parent = script(
        "import threading\n"
        "threading.Thread(target=endless.render, args=([],), daemon=True).start()\n"
        "while not shared_process()._lock.locked():\n"
        "    pass\n"
    )
    output, _ = parent.communicate(timeout=60)
    assert not is_at_work(int(output))
