"""Checks that a manifest's `content` is consistent: it has the shape of its family, and its counts add up.

In: `content`, the family. Out: findings. No file is read: other modules check the counts against the files.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, ListedFile, ShardEntry, SplitCounts, Totals, diff
from spanloom.dataset.root.layout import array_prefix, rejects_file, rows_file
from spanloom.dataset.statistics import SEQUENCE_LENGTHS
from spanloom.findings import Finding
from spanloom.provenance import sha256_json
from spanloom.records.scalars import is_integer
from spanloom.split import VALID
from spanloom.supervision import ALIGNMENT


def check_shape(content: Content, family: DatasetFamily) -> Iterator[Finding]:
    """Checks shards, splits, spans, arrays and file names, on which all other checks rely."""
    numbers = [shard.shard for shard in content.shards]
    if numbers != list(range(len(numbers))):
        yield wrong(f"the shards are numbered {numbers}, not from 0 on")
    layout = family.layout(content)
    if content.arrays != dict(layout.arrays):
        yield wrong(f"arrays is {content.arrays}, {content.family} has {dict(layout.arrays)}")
    if content.model_extra:
        yield wrong(f"content has {', '.join(sorted(content.model_extra))}, which this version does not know")
    if content.span_names != layout.span_names:
        yield wrong(f"span_names is {list(content.span_names)}, {content.family} has {list(layout.span_names)}")
    parts: list[tuple[int | None, Mapping[str, SplitCounts]]] = [(None, content.totals.splits)]
    parts += [(shard.shard, shard.splits) for shard in content.shards]
    for number, splits in parts:
        if set(splits) != set(family.SPLITS):
            yield wrong(f"the splits are {sorted(splits)}, {content.family} has {sorted(family.SPLITS)}", number)
        for split, counts in splits.items():
            if set(counts.span_tokens) != set(layout.span_names):
                yield wrong(f"span_tokens is of {sorted(counts.span_tokens)}", number, split)
            if set(counts.fitting) != set(map(str, SEQUENCE_LENGTHS)):
                yield wrong(f"fitting is of {sorted(counts.fitting)}, not of {SEQUENCE_LENGTHS}", number, split)
    for shard in content.shards:
        for split, counts in shard.splits.items():
            if message := _wrong_names(counts.files, _named(content, split, shard.shard) if counts.sequences else []):
                yield wrong(message, shard.shard, split)
        rejects = [] if shard.rejects_file is None else [shard.rejects_file]
        wanted = rejects_file(Path(), shard.shard).as_posix()
        if rejects and (message := _wrong_names(rejects, [wanted])):
            yield wrong(message, shard.shard)


def _named(content: Content, split: str, shard: int) -> list[str]:
    """The names of the files of a non-empty split of a shard."""
    arrays = [array_prefix(Path(), split, shard, name).as_posix() for name in content.arrays]
    return [
        rows_file(Path(), split, shard).as_posix(),
        *(f"{name}{end}" for name in arrays for end in (".bin", ".idx")),
    ]


def _wrong_names(listed: Sequence[ListedFile], wanted: Sequence[str]) -> str | None:
    """The first difference between the listed and the wanted names, each of which must be listed once; or None."""
    named, expected = Counter(file.path for file in listed), Counter(wanted)
    if more := named - expected:
        return f"{', '.join(sorted(more))} is listed, but is not a file of this shard, or is listed twice"
    if missing := expected - named:
        return f"{', '.join(sorted(missing))} is not listed"
    return None


def check_sums(content: Content) -> Iterator[Finding]:
    """Checks the hash of `config`, and the totals: each is the sum, or for `longest` the maximum, over the shards."""
    if sha256_json(content.config) != content.config_sha256:
        yield wrong("config_sha256 is not the hash of config")
    shards = [_counts(shard) for shard in content.shards]
    totals = _counts(content.totals)
    for place in dict.fromkeys([*totals, *(place for counts in shards for place in counts)]):
        values = [counts.get(place, 0) for counts in shards]
        together = max(values) if place[-1] == "longest" else sum(values)
        if totals.get(place, 0) != together:
            split, name = (place[1], place[2:]) if place[0] == "splits" else (None, place)
            called = ".".join(name[1:] if name[0] in ("packing", "cutting") else name)
            yield wrong(f"{called} is {totals.get(place, 0)}, the shards add up to {together}", split=split)


def _counts(part: ShardEntry | Totals) -> dict[tuple[str, ...], int]:
    """Every count, by its path: `("splits", "train", "span_tokens", "final")`."""
    splits = {split: counts.model_dump(exclude={"files"}) for split, counts in part.splits.items()}
    counted = {
        "rows_read": part.rows_read,
        "rejected": part.rejected,
        "splits": splits,
        "packing": part.packing or {},
        "cutting": part.cutting or {},
    }
    return dict(_leaves(counted))


def _leaves(value: Mapping[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, (*place, name))
        else:
            yield (*place, name), inner


def check_documents_by_id(
    content: Content, config: Mapping[str, Any], split_rule: str, *, documents: str, rendered: bool, **of_split: Any
) -> Iterator[Finding]:
    """Common checks of families whose documents have ids: the options, the EOD is a token, the split follows from the
    ids, labels are aligned, nothing is packed.

    `config`: its expected value without `valid_fraction`; `documents`: their name in messages; `rendered`: whether
    there is a renderer; `of_split`: more expected values of `split`.
    """
    split, tokenizer = content.split, content.tokenizer
    assert split is not None, "the schema demands it of these families"
    yield from check_stated(content.config, {**config, "valid_fraction": split.valid_fraction}, "config")
    if tokenizer.eod >= tokenizer.vocab_size:
        yield wrong(f"tokenizer.eod is {tokenizer.eod}, ids are below {tokenizer.vocab_size}")
    sequences, valid = content.totals.sequences, content.totals.splits[VALID].sequences
    wanted = {
        "rule": split_rule,
        "threshold": str(int(Decimal(str(split.valid_fraction)) * 2**64)),
        "realised_valid_fraction": valid / sequences if sequences else 0.0,
        **of_split,
    }
    yield from check_stated({name: getattr(split, name) for name in wanted}, wanted, "split")
    yield from check_stated(content.alignment, ALIGNMENT, "alignment")
    if content.totals.packing is not None or any(shard.packing is not None for shard in content.shards):
        yield wrong(f"packing is given, but {documents} are not packed")
    if content.renderer is not None and not rendered:
        yield wrong(f"a renderer is given, but {documents} have none")


def check_input(content: Content, schema_version: str, without: Sequence[str] = ()) -> Iterator[Finding]:
    """Checks the schema of the input. `without`: fields of `input` that such a source does not have."""
    if content.input.schema_version != schema_version:
        yield wrong(f"input.schema_version is {content.input.schema_version!r}, not {schema_version!r}")
    for name in without:
        if getattr(content.input, name) is not None:
            yield wrong(f"input.{name} is given, but {schema_version} has none")


def check_caps(content: Content, names: Sequence[str]) -> Iterator[Finding]:
    """Checks that of each shard those rows were read that `config.caps` allows, or fewer where the tokens ran out, and
    that it has no more tokens. `names`: of the caps; without the section there are none."""
    caps = content.config.get("caps", dict.fromkeys(names))
    if (
        not isinstance(caps, dict)
        or set(caps) - ({"longest"} if caps.get("longest") else set()) != set(names)
        or any(cap is not None and not (is_integer(cap) and cap >= 0) for cap in caps.values())
    ):
        yield wrong(f"config.caps is {caps!r}, not a number or null for each of {', '.join(names)}")
        return
    yield from check_longest(content, caps.get("longest"))
    shards = len(content.shards)
    if len(content.input.shards) != shards:
        yield wrong(f"the input has {len(content.input.shards)} shards, the dataset {shards}")
        return
    for shard, source in zip(content.shards, content.input.shards, strict=True):
        of_each, number = caps["max_rows_per_shard"], shard.shard
        shares = _share(caps["max_rows"], number, shards)
        most = min([source.rows, *shares, *([] if of_each is None else [of_each])])
        budget = _share(caps.get("max_tokens"), number, shards)
        if shard.rows_read > most or (shard.rows_read < most and not budget):
            yield wrong(f"{shard.rows_read} rows read of {source.rows}, the caps allow {most}", number)
        tokens = sum(counts.tokens for counts in shard.splits.values())
        if budget and tokens > budget[0]:
            yield wrong(f"{tokens} tokens, the caps allow {budget[0]}", number)


def check_longest(content: Content, longest: Any) -> Iterator[Finding]:
    """Checks that no document is longer than an option allows, and that none was left out without the option."""
    if longest is not None and not (is_integer(longest) and longest > 0):
        yield wrong(f"longest is {longest!r}, not a number of tokens or absent")
        return
    for shard in content.shards:
        if longest is None and "too_long" in shard.rejected:
            yield wrong(f"{shard.rejected['too_long']} rows are too_long, and the options have no longest", shard.shard)
        for split, counts in shard.splits.items():
            if longest is not None and counts.longest > longest:
                yield wrong(f"a document has {counts.longest} tokens, longest is {longest}", shard.shard, split)


def _share(cap: int | None, shard: int, shards: int) -> list[int]:
    """The share of a shard: even; the first shards take the remainder; empty if there is no cap."""
    return [] if cap is None else [cap // shards + (shard < cap % shards)]


def check_files(content: Content, wanted: Mapping[str, str | None]) -> Iterator[Finding]:
    """Checks the list of the files that belong to no shard. `wanted`: path → sha256, None for any."""
    yield from check_stated(sorted(file.path for file in content.files), sorted(wanted), "files")
    digests = {file.path: file.sha256 for file in content.files if wanted.get(file.path) is not None}
    yield from check_stated(digests, {name: wanted[name] for name in digests}, "files")


def check_no_links(root: Path, names: Iterable[str]) -> Iterator[Finding]:
    """Checks that files which the dataset carries are no links: their bytes would be those of another place."""
    for name in names:
        if (root / name).is_symlink():
            yield Finding(check="carried", message="it is a link", file=name)


def rows_to_read(content: Content, rows: int) -> int:
    """How many of a source's rows the dataset was to read. `rows`: how many there are; `config.max_rows`: the cap."""
    cap = content.config.get("max_rows")
    return min(rows, cap) if isinstance(cap, int) else rows


def check_rejected(
    shard: ShardEntry, *, written: int | None = None, reasons: Callable[[str], bool] | None = None, listed: bool | None
) -> Iterator[Finding]:
    """Checks that each row read was written or rejected, for a known reason.

    `written`: rows that became documents, if that is known; `reasons`: whether a reason is known; `listed`: whether
    the rejected rows are in a file, None if either is right.
    """
    rejected = sum(shard.rejected.values())
    if written is not None and written + rejected != shard.rows_read:
        yield wrong(f"{shard.rows_read} rows read, but {written} written and {rejected} rejected", shard.shard)
    if reasons is not None and not (all(shard.rejected.values()) and all(map(reasons, shard.rejected))):
        yield wrong(f"rejected is {shard.rejected}, with an unknown reason or a count of 0", shard.shard)
    has_file = shard.rejects_file is not None
    if has_file != (rejected > 0 and (has_file if listed is None else listed)):
        there = "there is a rejects file" if has_file else "there is no rejects file"
        yield wrong(f"{rejected} rows rejected, and {there}", shard.shard)


def wrong(message: str, shard: int | None = None, split: str | None = None) -> Finding:
    """A finding about a manifest."""
    return Finding(check="manifest", message=message, split=split, shard=shard)


def check_stated(stated: Any, wanted: Any, place: str, *, check: str = "manifest") -> Iterator[Finding]:
    """A finding for each value in `stated`, at `place` in the manifest, that differs from `wanted`."""
    for path, value, expected in diff(stated, wanted, place):
        yield Finding(check=check, message=f"{path} is {_shown(value)}, not {_shown(expected)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
