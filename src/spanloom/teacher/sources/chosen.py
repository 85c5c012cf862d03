"""The teacher of some options, whose tokenizer is that of a dataset.

In: options, the dataset. Out: a `Teacher`. What a source needs is imported when it is chosen.
"""

from collections.abc import Sequence
from pathlib import Path

from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import tokenizer_at
from spanloom.errors import OptionError
from spanloom.teacher.sources.options import TeacherOptions
from spanloom.teacher.sources.teacher import Teacher
from spanloom.teacher.tokenizer import check_tokenizer, stretches


def chosen_teacher(
    root: Path,
    content: Content,
    family: DatasetFamily,
    options: TeacherOptions,
    k: int,
    shards: Sequence[tuple[str, int]] | None = None,
) -> Teacher:
    """The teacher. `content`, `family`: of the dataset at `root`; `k`: tokens a label; `shards`: splits of shards whose
    texts are compared, None for all.

    Raises OptionError unless one teacher is given, TeacherError if its tokenizer is not that of the dataset.
    """
    given = {"--model": options.model, "--vllm": options.vllm, "--server": options.server}
    if sum(value is not None for value in given.values()) != 1:
        raise OptionError(f"a teacher is one of {', '.join(given)}", remedy="give one of them")
    folder = options.model or options.vllm
    tokenizer = options.tokenizer if folder is None else folder / "tokenizer.json"
    if tokenizer is None:
        raise OptionError("a server does not give its tokenizer", remedy="--tokenizer FILE, that of its model")
    if not tokenizer.is_file():
        raise OptionError("the teacher has no tokenizer.json", where=str(tokenizer))
    own = tokenizer_at(root, None)
    vocabulary = family.load_vocabulary(content, own)
    size = content.tokenizer.vocab_size
    texts = stretches(root, content, content.filled() if shards is None else shards, vocabulary)
    check_tokenizer(vocabulary, size, own, tokenizer, list(texts))
    if options.server is not None:
        from spanloom.teacher.sources.server import ServerTeacher

        return ServerTeacher(options.server, model=options.served_model, concurrency=options.concurrency)
    if options.vllm is not None:
        from spanloom.teacher.sources.vllm import VllmTeacher

        return VllmTeacher(
            options.vllm,
            k=k,
            dtype=options.dtype or "bfloat16",
            tensor_parallel=options.tensor_parallel,
            quantization=options.quantization,
            context=options.context,
        )
    assert options.model is not None
    from spanloom.teacher.sources.hugging import HuggingFaceTeacher  # imports torch

    return HuggingFaceTeacher(
        options.model,
        vocabulary=size,
        dtype=options.dtype or "float32",
        device=options.device,
        batch_tokens=options.batch_tokens,
        leave_out_padded=options.padded_ids == "leave-out",
    )
