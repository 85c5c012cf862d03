"""Megatron-LM's own `pretrain_gpt.py` on datasets of Spanloom: `python -m spanloom.training.pretrain_gpt FLAGS`.

In: Megatron-LM's flags, which name a blend of a dataset's shards, and a few of our own. Out: what Megatron-LM writes.

The stock script runs unchanged, with its `forward_step`, its model, its optimizer and its checkpoints. Replaced are the
dataset class, `get_batch` and `loss_func` (if the dataset has spans), the tokenizer, and two values of the training
loop: the number of micro-batches of a step, and the sums of an evaluation.
"""

import argparse
import functools
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spanloom.dataset.manifest import Content
from spanloom.dataset.plan.format import open_plan, read_plan
from spanloom.errors import DatasetError, SpanloomError
from spanloom.teacher.format import read_teacher
from spanloom.text import visible
from spanloom.training.megatron_lm import LaunchScript, load_script, swap
from spanloom.training.shard import match_prefix, read_content

TEACH = """
Every other flag is Megatron-LM's own (`python pretrain_gpt.py --help` in its folder lists them). Set without asking:
--calculate-per-token-loss, and the vocabulary of the dataset, unless --tokenizer-type or --vocab-size is given.

example
  spanloom blend data/dataset --sequence-length 4096 --out blend.json
  torchrun --nproc-per-node 8 -m spanloom.training.pretrain_gpt --megatron-lm ~/Megatron-LM \\
      --span-weights analysis=0.5,final=1 --per-split-data-args-path blend.json --data-cache-path cache …

With whole documents in each sample:
  spanloom plan data/dataset --sequence-length 4096 --out plan
  torchrun … -m spanloom.training.pretrain_gpt --plan plan --seq-length 4096 --data-cache-path cache …
"""

OTHER_DATA = ("--mock-data", "--sft", "--fim-data")
"""Flags that make the stock script use another dataset class."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Our own flags, and the rest of the command line."""

    megatron_lm: Path | None
    span_weights: str
    plan: Path | None
    dataset_root: Path | None
    megatron_flags: tuple[str, ...]
    teacher: Path | None = None
    missing_teacher: Literal["error", "zero"] = "error"
    cross_entropy: float = 0.0
    divergence: Literal["forward", "reverse", "jensen-shannon"] = "forward"
    temperature: float = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains. Returns the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        content = trained_content(options.megatron_flags, options.plan, options.dataset_root)
        script = load_script(options.megatron_lm)
        prepare(script, content, options)
        flags = (*options.megatron_flags, *plan_flags(options.plan))
        sys.argv = [str(script.path), *default_flags(content, flags), *flags]
        script.run()
    except SpanloomError as error:  # torchrun starts this module, and each rank exits by itself
        print(visible(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    return 0


def prepare(script: LaunchScript, content: Content, options: Options) -> None:
    """Replaces functions of Megatron-LM with ours. Raises DatasetError if a function is not as expected."""
    # Imported late: these import megatron, and `load_script` has chosen the installation.
    from spanloom.training.loss import span_weights
    from spanloom.training.megatron_step import SpanStep

    training = importlib.import_module("megatron.training.training")
    global_vars = importlib.import_module("megatron.training.global_vars")
    planned = options.plan is not None
    swap(script.module, "GPTDataset", lambda _: dataset_class(content, planned=planned))
    swap(script.module, "core_gpt_dataset_config_from_args", lambda stock: _config_for(stock, content, options), "args")
    swap(script.module, "train_valid_test_datasets_provider", _named_provider, "train_val_test_num_samples")
    if not _names_tokenizer(options.megatron_flags):
        for module in (script.module, global_vars):
            swap(module, "build_tokenizer", lambda _: _tokenizer_for(content), "args")
    if "span" not in content.arrays:
        if options.span_weights:
            raise DatasetError("--span-weights: this dataset has no spans", remedy="leave the flag out")
        if options.teacher is not None:
            raise DatasetError(
                "--teacher: this dataset has no spans", remedy="leave the flag out, or build it with spans"
            )
        return
    mask = script.batch_names.index("loss_mask")
    teacher = None
    if options.teacher is not None:
        teacher = _teacher(script, options)
        language_module = importlib.import_module("megatron.core.models.common.language_module.language_module")
        swap(
            language_module.LanguageModule,
            "compute_language_model_loss",
            teacher.model_loss,
            "self",
            "labels",
            "logits",
        )
    step = SpanStep(span_weights(options.span_weights, content.span_names), mask, teacher)
    swap(script.module, "get_batch", step.get_batch, "data_iterator")
    swap(script.module, "loss_func", step.loss_func, "loss_mask", "output_tensor")
    swap(training, "get_forward_backward_func", step.schedule)
    swap(training, "evaluate", step.evaluate, "forward_step_func", "data_iterator")


def _teacher(script: LaunchScript, options: Options) -> Any:
    from spanloom.training.distillation.loss import TeacherLoss
    from spanloom.training.distillation.megatron import TeacherInStep

    assert options.teacher is not None
    loss = TeacherLoss(
        cross_entropy=options.cross_entropy, divergence=options.divergence, temperature=options.temperature
    )
    labels, mask = (script.batch_names.index(name) for name in ("labels", "loss_mask"))
    return TeacherInStep(loss, read_teacher(options.teacher)[0].k, labels=labels, mask=mask)


def dataset_class(content: Content, *, planned: bool) -> type:
    """The dataset class of each split. `_config_for` sets what else it needs."""
    from spanloom.training.megatron_dataset import SpanGPTDataset, SpanWireGPTDataset
    from spanloom.training.packed_megatron import PackedGPTDataset, PackedWireGPTDataset

    with_span, without = (PackedWireGPTDataset, PackedGPTDataset) if planned else (SpanWireGPTDataset, SpanGPTDataset)
    return with_span if "span" in content.arrays else without


def _named_provider(stock: Any) -> Any:
    """The stock provider; an unreadable blend index is reported with its file name."""
    from megatron.training import get_args

    from spanloom.training.megatron_dataset import blended_index_named

    @functools.wraps(stock)
    def train_valid_test_datasets_provider(*args: Any, **kwargs: Any) -> Any:
        with blended_index_named(Path(get_args().data_cache_path or ".")):
            return stock(*args, **kwargs)

    return train_valid_test_datasets_provider


def _config_for(stock: Any, content: Content, options: Options) -> Any:
    def core_gpt_dataset_config_from_args(args: Any) -> Any:
        config = stock(args)
        config.teacher, config.missing_teacher = options.teacher, options.missing_teacher
        if options.teacher is not None and args.context_parallel_size > 1 and options.plan is not None:
            raise DatasetError(
                "--teacher: the documents of a plan are cut one by one for context parallelism, signals are not",
                remedy="train without --plan, or with --context-parallel-size 1",
            )
        if options.plan is not None:
            config.spanloom_dataset_root = options.dataset_root
            # Before 0.19 the script hands no bounds of documents to the model.
            if not config.create_attention_mask and not getattr(config, "inter_document_masking", False):
                raise DatasetError(
                    "nothing would keep the documents of a sample apart",
                    where="--plan",
                    remedy="take --dataloader-inter-document-masking (Megatron-LM 0.19 on, Transformer Engine), or "
                    "leave out --no-create-attention-mask-in-dataloader",
                )
        elif content.block_size is not None:
            config.add_extra_token_to_sequence = False  # samples are whole blocks: see SpanGPTDataset
        return config

    return core_gpt_dataset_config_from_args


def _tokenizer_for(content: Content) -> Any:
    from spanloom.training.megatron_dataset import dataset_tokenizer

    def build_tokenizer(args: Any, *_: Any, **__: Any) -> Any:
        """The dataset's tokenizer. Sets `args.padded_vocab_size` by Megatron's rule if it is not set."""
        tokenizer = dataset_tokenizer(content)
        if getattr(args, "padded_vocab_size", None) is None:
            multiple = args.make_vocab_size_divisible_by * args.tensor_model_parallel_size
            args.padded_vocab_size = -(-args.vocab_size // multiple) * multiple
        return tokenizer

    return build_tokenizer


def default_flags(content: Content, flags: Sequence[str]) -> list[str]:
    """Flags placed before the user's flags. If both name a flag, the user's value counts.

    The dataset's vocabulary is padded already (201,088 for o200k_harmony, like the embeddings of gpt-oss), so Megatron
    only has to make it divisible by the tensor-parallel ranks.
    """
    loss = ["--calculate-per-token-loss"]
    if _names_tokenizer(flags):
        return loss
    return [*loss, "--vocab-size", str(content.tokenizer.vocab_size), "--make-vocab-size-divisible-by", "1"]


def _names_tokenizer(flags: Sequence[str]) -> bool:
    return any(flag.partition("=")[0] == "--tokenizer-type" for flag in flags)


def plan_flags(plan: Path | None) -> list[str]:
    """Megatron's flags that name the splits of a plan as its data."""
    if plan is None:
        return []
    return [text for split in plan_splits(plan) for text in (f"--{split}-data-path", str(plan / split))]


def plan_splits(plan: Path) -> list[str]:
    """The splits of a plan that have samples."""
    return [split for split, planned in read_plan(plan)[0].splits.items() if planned.samples]


def trained_content(flags: Sequence[str], plan: Path | None = None, root: Path | None = None) -> Content:
    """The manifest's `content` of the datasets in Megatron's flags, or of the plan's dataset, whose folder is `root`.

    Several datasets are allowed if their arrays, spans, tokenizer and block size are the same. Raises DatasetError,
    ArtifactError or ManifestError.
    """
    for flag in OTHER_DATA:
        if flag in flags:
            raise DatasetError(f"{flag} trains on other data than a dataset of Spanloom", remedy="leave the flag out")
    if plan is not None:
        if named := _prefixes(flags):
            raise DatasetError(
                "a plan is of one dataset, and Megatron's flags name data too",
                where=", ".join(named[:3]),
                remedy="leave these flags out, or --plan",
            )

        opened = open_plan(plan, root)
        if "--skip-train" not in flags:
            opened.split("train")
        if "valid" not in plan_splits(plan) and _megatron_flags(flags).eval_iters != "0":
            raise DatasetError(
                "the plan has no samples of valid to evaluate on; Megatron would report this only after training",
                where=str(plan),
                remedy="give --eval-iters 0, or build the dataset with a larger --valid-fraction",
            )
        return read_content(opened.root)
    if root is not None:
        raise DatasetError("--dataset-root says where the dataset of a plan is", remedy="leave it out, or give --plan")
    prefixes = [Path(prefix) for prefix in _prefixes(flags)]
    for prefix in prefixes:
        match_prefix(prefix)
    roots = sorted({prefix.parent.parent for prefix in prefixes})
    if not roots:
        raise DatasetError(
            "no dataset was named",
            remedy="`spanloom blend ROOT --sequence-length … --out blend.json`, then --per-split-data-args-path "
            "blend.json",
        )
    first, *others = (read_content(root) for root in roots)
    for root, content in zip(roots[1:], others, strict=True):
        for name in ("tokenizer", "arrays", "span_names", "block_size"):
            if getattr(content, name) != getattr(first, name):
                raise DatasetError(
                    f"its {name} is {getattr(content, name)}, that of {roots[0]} is {getattr(first, name)}",
                    where=str(root),
                    remedy="train on datasets of one kind at a time",
                )
    return first


def _megatron_flags(flags: Sequence[str]) -> argparse.Namespace:
    """Megatron's flags that name the training and evaluation data."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("data-path", "train-data-path", "valid-data-path", "test-data-path"):
        parser.add_argument(f"--{name}", nargs="*", default=[])
    parser.add_argument("--data-args-path", type=Path)
    parser.add_argument("--per-split-data-args-path", type=Path)
    parser.add_argument("--eval-iters", default="100")  # Megatron's default
    return parser.parse_known_args(flags)[0]


def _prefixes(flags: Sequence[str]) -> list[str]:
    """Prefixes of shards in Megatron's data flags, without the weights of blends."""
    named = _megatron_flags(flags)
    parts = [*named.data_path, *named.train_data_path, *named.valid_data_path, *named.test_data_path]
    for path in filter(None, (named.data_args_path, named.per_split_data_args_path)):
        try:
            text = path.read_text()
            read = json.loads(text) if path == named.per_split_data_args_path else {"": text}
            for blend in read.values():
                parts += blend.split() if isinstance(blend, str) else blend or []
        except (OSError, ValueError, AttributeError, TypeError) as fault:
            raise DatasetError(
                f"the blend cannot be read: {fault}",
                where=str(path),
                remedy="write it with `spanloom blend ROOT --sequence-length … --out blend.json`",
            ) from fault
    return [part for part in map(str, parts) if not _is_weight(part)]


def _is_weight(part: str) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def parse(arguments: Sequence[str]) -> Options:
    """Parses our flags; Megatron's stay unchanged."""
    parser = argparse.ArgumentParser(
        prog="python -m spanloom.training.pretrain_gpt",
        description="Train with Megatron-LM's own pretrain_gpt.py on a dataset of Spanloom, with the loss per span.",
        epilog=TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s [--megatron-lm DIR] [--span-weights NAME=W,…] [--plan PLAN [--dataset-root DIR]] "
        "[--teacher SIGNALS] MEGATRON_FLAGS",
    )
    parser.add_argument(
        "--megatron-lm", type=Path, help="root of a Megatron-LM checkout (default: where PYTHONPATH finds it)"
    )
    parser.add_argument(
        "--span-weights", default="", help="weights of the loss by span, as analysis=1,final=0.5; 1 where none is given"
    )
    parser.add_argument(
        "--plan",
        type=Path,
        help="a plan of `spanloom plan`, in place of Megatron's data flags: whole documents",
    )
    parser.add_argument(
        "--dataset-root", type=Path, help="where the plan's dataset is here, if not where it was when it was planned"
    )
    parser.add_argument(
        "--teacher", type=Path, help="signals of `spanloom teacher score`: the loss is the divergence from the teacher"
    )
    parser.add_argument(
        "--missing-teacher",
        choices=("error", "zero"),
        default="error",
        help="what a document without signals is: an error, or without loss",
    )
    parser.add_argument(
        "--teacher-cross-entropy",
        dest="cross_entropy",
        type=float,
        default=0.0,
        help="share of the cross entropy in the loss against a teacher: 0 to 1",
    )
    parser.add_argument(
        "--teacher-divergence",
        dest="divergence",
        choices=("forward", "reverse", "jensen-shannon"),
        default="forward",
        help="of teacher and student; forward: KL(teacher, student)",
    )
    parser.add_argument(
        "--teacher-temperature", dest="temperature", type=float, default=1.0, help="of both distributions"
    )
    ours, rest = parser.parse_known_args(arguments)
    return Options(**vars(ours), megatron_flags=tuple(rest))


if __name__ == "__main__":
    sys.exit(main())
