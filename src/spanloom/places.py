"""The steps over places: each takes local paths, `gs://` or `s3://` URIs, and calls its step on local paths alone.

In: places as text. Out: what the step returns. What is remote is staged to scratch, sizes and hashes checked; what is
made for a remote place is made in scratch and published create-only, data first and what vouches for it last:
`rendered.json`, `split.json`, the inventory, `manifest.json`. With local places alone nothing is copied.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spanloom import manifest
from spanloom.chat.blocks import FAMILY as PACKED_CHAT
from spanloom.chat.conversations import SUFFIXES as CONVERSATION_SUFFIXES
from spanloom.chat.records import transcript_files
from spanloom.chat.sample import sample_conversations
from spanloom.chat.tokenizer import load_tokenizer as load_chat_tokenizer
from spanloom.chat.transcripts import SUFFIXES as TRANSCRIPT_SUFFIXES
from spanloom.errors import ConflictError, StorageError
from spanloom.findings import Report
from spanloom.harmony.caps import Caps
from spanloom.harmony.rendered import IDS_JSON, RENDERED_JSON, read_sidecar
from spanloom.harmony.source import MANIFEST_NAME as SOURCE_MANIFEST
from spanloom.harmony.source import listed_shards, open_source
from spanloom.harmony.split_files import SPLIT_JSON
from spanloom.harmony.synth import Conversion
from spanloom.harmony.synth import convert_synth as convert
from spanloom.inventory import listed_files
from spanloom.o200k.asset import ASSET_BYTES, ASSET_NAME, ASSET_SHA256
from spanloom.provenance import git_sha, readable_json
from spanloom.report.progress import Progress
from spanloom.report.views import VIEW_NAMES
from spanloom.steps import assemble_manifest as manifest_step
from spanloom.steps import assemble_split as split_step
from spanloom.steps import generate_chat as generate_step
from spanloom.steps import pack_chat as pack_step
from spanloom.steps import render_shard as render_step
from spanloom.steps import validate_alignment as validate_step
from spanloom.steps import verify_tokenizer as tokenizer_step
from spanloom.steps import write_indexed as write_step
from spanloom.steps.generate_chat import GeneratorRules
from spanloom.steps.pack_chat import PackingRules
from spanloom.storage import publish_bytes, sha256_file, write_atomically
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import Upload, publish_file, publish_files, remove_if_allowed
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import (
    Download,
    find,
    list_objects,
    read_object,
    require,
    safe_name,
    stage_file,
    stage_files,
)
from spanloom.storage.uri import Uri, is_uri, parse_uri
from spanloom.supervision import ALIGNMENT
from spanloom.workers import Counters, process_pool

OnProgress = Callable[[int, int], None]


def verify_tokenizer(
    *, tokenizer: str | None = None, asset: str | None = None, report: str | None = None, scratch: Path | None = None
) -> dict[str, Any]:
    """Step 1. `asset`: where a copy of the verified file goes; `report`: where what this returns goes, as JSON."""
    with scratch_for("verify-tokenizer", [tokenizer, asset, report], scratch) as here:
        verified = tokenizer_step.verify_tokenizer(_staged_tokenizer(here, tokenizer))
        result = {**asdict(verified), "path": here.stands_for.get(verified.path, str(verified.path))}
        if asset:
            publish_bytes(verified.path.read_bytes(), here.path(asset))
            here.publish_file(asset)
        if report:
            write_atomically(here.path(report), readable_json(result))
            here.publish_file(report, replace=True)
    return result


def render_shard(
    *,
    source: str,
    shard: int,
    rendered: str,
    ids: str,
    shards: int,
    progress: Progress,
    tokenizer: str | None = None,
    workers: int | None = None,
    caps: Caps | None = None,
    scratch: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Step 2 for one shard; of the source only its manifest and this shard are read. `options` go to the step."""
    caps = caps or Caps()
    with scratch_for("render-shard", [source, shard, rendered, ids], scratch) as here:
        local_source = staged_source(here, source, only=shard)
        asset = _staged_tokenizer(here, tokenizer)
        there = open_source(local_source, shards=shards, only=shard).shards[shard].rows
        share = caps.share(shard, shards).rows
        rows = [0] * shards
        rows[shard] = there if share is None else min(there, share)
        counters = Counters(shards)
        with process_pool(workers or os.cpu_count() or 1, counters) as pool, progress.rendering(counters, rows):
            result = render_step.render_shard(
                source=local_source,
                shard=shard,
                rendered=here.path(rendered),
                ids=here.path(ids),
                pool=pool,
                tokenizer=asset,
                shards=shards,
                caps=caps,
                **options,
            )
        here.publish_folder(ids, last=IDS_JSON)
        here.publish_folder(rendered, last=RENDERED_JSON)
    return result


def assemble_split(*, ids: Sequence[str], split: str, scratch: Path | None = None, **options: Any) -> dict[str, Any]:
    """Step 3. `options` go to the step."""
    with scratch_for("assemble-split", [*ids, split], scratch) as here:
        folders = [here.folder(place) for place in ids]
        result = split_step.assemble_split(ids=folders, split=here.path(split), **options)
        here.publish_folder(split, last=SPLIT_JSON)
    return result


def write_indexed(
    *,
    rendered: str,
    ids: str,
    split: str,
    root: str,
    inventory: str,
    resume: bool = True,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Step 4 for one shard. A remote root is claimed for this build first; the inventory appears when all files stand.

    Raises ConflictError when another build has the root, or holds other bytes under one of the names.
    """
    with scratch_for("write-indexed", [rendered, ids, split, root, inventory], scratch) as here:
        folders = {"rendered": here.folder(rendered), "ids": here.folder(ids), "split": here.folder(split)}
        if not is_uri(root):
            result = write_step.write_indexed(**folders, root=Path(root), inventory=here.path(inventory), resume=resume)
            here.publish_file(inventory)
            return result
        uri, local_root = parse_uri(root), here.path(root)
        claim_root(uri, _build_of(folders["rendered"], folders["split"]))
        made = local_root.parent / "inventory.json"
        result = write_step.write_indexed(**folders, root=local_root, inventory=made, resume=resume)
        files = [file for counts in result["splits"].values() for file in counts["files"]]
        files += [result["rejects_file"]] if result["rejects_file"] else []
        _publish_data(files, local_root, uri)
        here.bring_home(made, inventory)
    return result


def _build_of(rendered: Path, split: Path) -> dict[str, Any]:
    """What decides the bytes below a root, as far as one shard knows: equal for all shards and retries of a build."""
    shard, decided = read_sidecar(rendered / RENDERED_JSON), read_sidecar(split / SPLIT_JSON)
    return {
        "git_sha": git_sha(),
        **{name: shard[name] for name in ("shards", "source", "tokenizer_sha256", "renderer", "caps")},
        "split": {name: decided[name] for name in ("rule", "valid_fraction", "threshold")},
        "alignment": ALIGNMENT,
    }


def assemble_manifest(
    *, inventories: Sequence[str], root: str, allow_unknown_sha: bool = False, scratch: Path | None = None
) -> dict[str, Any]:
    """Step 5. At a remote root a manifest with the same `content`, pending or promoted, counts as written."""
    with scratch_for("assemble-manifest", [*inventories, root], scratch) as here:
        files = [here.file(place) for place in inventories]

        def assemble(where: Path) -> dict[str, Any]:
            return manifest_step.assemble_manifest(
                inventories=files, root=where, allow_unknown_sha=allow_unknown_sha, environment={"root": root}
            )

        if not is_uri(root):
            return assemble(Path(root))
        uri, local_root = parse_uri(root), here.path(root)
        if _staged_manifests(uri, local_root):
            return assemble(local_root)  # held against what stands there
        written = assemble(local_root)
        _publish_pending(uri, local_root, written)
    return written


def validate_alignment(
    *,
    root: str,
    source: str | None = None,
    deep: int = 0,
    tokenizer: str | None = None,
    report: str | None = None,
    html: str | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> Report:
    """Step 6. Of a remote root all is staged and checked; on a clean report `manifest.json` becomes its last object."""
    with scratch_for("validate-alignment", [root, source, report, html], scratch) as here:
        local_root = staged_root(here, root)
        standing = _staged_views(parse_uri(root), local_root) if is_uri(root) else {}
        family = manifest.read_any(local_root)["content"]["family"]
        result = validate_step.validate_alignment(
            root=local_root,
            source=None if source is None else _staged_input(here, source, family),
            deep=deep,
            tokenizer=(_staged_chat_tokenizer if family == PACKED_CHAT else _staged_tokenizer)(here, tokenizer),
            report_file=None if report is None else here.path(report),
            html_file=None if html is None else here.path(html),
            on_progress=on_progress,
        )
        for place in filter(None, (report, html)):
            here.publish_file(place, replace=True)
        if is_uri(root) and result.clean:
            uri = parse_uri(root)
            for name in VIEW_NAMES:
                if (local_root / name).is_file() and (local_root / name).read_bytes() != standing.get(name):
                    publish_file(local_root / name, uri / name, replace=True)
            publish_file(local_root / manifest.MANIFEST_NAME, uri / manifest.MANIFEST_NAME)
            if find(uri / manifest.PENDING_NAME) is not None:
                remove_if_allowed(uri / manifest.PENDING_NAME)
    return result


def convert_synth(
    *,
    raw: str,
    out: str,
    conversion: Conversion,
    max_rows: int | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Raw SYNTH (a Parquet file or a folder of them) → a `synth_harmony_v1` folder."""
    with scratch_for("convert-synth", [raw, out], scratch) as here:
        local_raw = _staged_records(here, raw, (".parquet",))
        local_out = here.path(out)
        if is_uri(out):
            shutil.rmtree(local_out, ignore_errors=True)  # what a killed run left; the conversion wants it empty
        result = convert(
            raw=local_raw, out=local_out, conversion=conversion, max_rows=max_rows, on_progress=on_progress
        )
        here.publish_folder(out, last=SOURCE_MANIFEST)
    return result


def chat_sample(*, out: str, conversations: int, scratch: Path | None = None) -> None:
    """Conversations of our own as JSONL, create-only."""
    with scratch_for("chat-sample", [out], scratch) as here:
        lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in sample_conversations(conversations))
        publish_bytes("".join(lines).encode(), here.path(out))
        here.publish_file(out)


def generate_chat(
    *,
    source: str,
    out: str,
    rules: GeneratorRules,
    tokenizer: str | None = None,
    report: str | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Conversations → transcripts, and the report of what does not fit."""
    with scratch_for("generate-chat", [source, out, tokenizer, report], scratch) as here:
        if report and is_uri(report):
            here.path(report).unlink(missing_ok=True)  # of an earlier run in a scratch folder that was kept
        try:
            result = generate_step.generate_chat(
                source=_staged_records(here, source, CONVERSATION_SUFFIXES),
                out=here.path(out),
                tokenizer=_staged_chat_tokenizer(here, tokenizer),
                rules=rules,
                report=here.path(report) if report else None,
                on_progress=on_progress,
            )
            here.publish_file(out)
        finally:  # where nothing fits, the report says why
            if report and is_uri(report) and here.path(report).is_file():
                here.publish_file(report, replace=True)
    return result


def pack_chat(
    *,
    transcripts: str,
    root: str,
    rules: PackingRules,
    tokenizer: str | None = None,
    asset: str | None = None,
    workers: int | None = None,
    scratch: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Transcripts → the files of a dataset and its pending manifest. A remote root is claimed for this dataset first.

    `asset`: where a copy of the tokenizer goes. `options` go to the step. Raises ConflictError when another build has
    the root, or holds other bytes under one of the names.
    """
    with scratch_for("pack-chat", [transcripts, root, tokenizer, asset], scratch) as here:
        source = _staged_records(here, transcripts, TRANSCRIPT_SUFFIXES)
        loaded = load_chat_tokenizer(_staged_chat_tokenizer(here, tokenizer))

        def pack(where: Path) -> dict[str, Any]:
            workers_here = workers or pack_step.useful_workers(loaded, source)
            with process_pool(workers_here) if workers_here > 1 else nullcontext() as pool:
                return pack_step.pack_chat(
                    transcripts=source,
                    root=where,
                    tokenizer=loaded.path,
                    rules=rules,
                    pool=pool,
                    environment={"source": transcripts, "root": root, "workers": workers_here},
                    **options,
                )

        if asset:
            publish_bytes(loaded.path.read_bytes(), here.path(asset))
            here.publish_file(asset)
        if not is_uri(root):
            return pack(Path(root))
        uri, local_root = parse_uri(root), here.path(root)
        inputs = [sha256_file(file) for file in transcript_files(source)]
        claim_root(uri, {"git_sha": git_sha(), "config": pack_step.config_of(rules, loaded), "inputs": inputs})
        shutil.rmtree(local_root, ignore_errors=True)  # what a killed run left, perhaps of other transcripts
        standing = _staged_manifests(uri, local_root)
        written = pack(local_root)  # held against the manifest that stands there
        _publish_data(listed_files(written["content"]), local_root, uri)
        if not standing:
            _publish_pending(uri, local_root, written)
    return written


def _publish_data(files: Iterable[dict[str, Any]], local_root: Path, uri: Uri) -> None:
    """As on a disk: all data before any .idx, without which Megatron sees no dataset."""
    files = list(files)
    for indexes in (False, True):
        publish_files(
            [
                Upload(path=local_root / file["path"], uri=uri / file["path"], sha256=file["sha256"])
                for file in files
                if file["path"].endswith(".idx") is indexes
            ]
        )


def _publish_pending(uri: Uri, local_root: Path, written: dict[str, Any]) -> None:
    pending = local_root / manifest.PENDING_NAME
    try:
        publish_file(pending, uri / manifest.PENDING_NAME)
    except ConflictError:  # somebody was faster: theirs has its own time, but may have the same content
        _staged_manifests(uri, local_root)
        manifest.write_pending(local_root, written)


def _staged_records(here: Scratch, place: str, suffixes: tuple[str, ...]) -> Path:
    """A file of one of these kinds, or all such files of a folder."""
    path = here.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    if uri.key.endswith(suffixes) and find(uri):
        found = [uri]
    else:
        found = [entry.uri for entry in list_objects(uri) if entry.uri.key.endswith(suffixes)]
    if not found:
        kinds = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise StorageError(f"there is no {kinds} object below this URI", where=str(uri), remedy="mend the URI")
    for entry in found:
        name = entry.key.removeprefix(uri.key).strip("/")
        stage_file(entry, path / safe_name(name, uri) if name else path)
    return path


@contextmanager
def local_source(source: str, scratch: Path | None = None) -> Iterator[Path]:
    """The whole of a `synth_harmony_v1` folder on this machine, while the block runs."""
    with scratch_for("source", [source], scratch) as here:
        yield staged_source(here, source)


@contextmanager
def local_input(source: str, family: str, scratch: Path | None = None) -> Iterator[Path]:
    """What a dataset of this family was built from on this machine, while the block runs."""
    with scratch_for("source", [source], scratch) as here:
        yield _staged_input(here, source, family)


def _staged_input(here: Scratch, source: str, family: str) -> Path:
    if family == PACKED_CHAT:
        return _staged_records(here, source, TRANSCRIPT_SUFFIXES)
    return staged_source(here, source)


@contextmanager
def local_transcripts(
    source: str, tokenizer: str | None = None, scratch: Path | None = None
) -> Iterator[tuple[Path, Path | None]]:
    """Transcripts, a file or a folder, and their tokenizer on this machine, while the block runs."""
    with scratch_for("transcripts", [source, tokenizer], scratch) as here:
        yield _staged_records(here, source, TRANSCRIPT_SUFFIXES), _staged_chat_tokenizer(here, tokenizer)


@contextmanager
def local_root(root: str, scratch: Path | None = None) -> Iterator[Path]:
    """A dataset on this machine as it lies at `root`, right or wrong, while the block runs."""
    with scratch_for("root", [root], scratch) as here:
        yield staged_root(here, root)


def read_manifest(place: str) -> dict[str, Any]:
    """The manifest of the dataset at a place, or in the file there."""
    return manifest.read_remote(parse_uri(place))[0] if is_uri(place) else manifest.read(Path(place))


def staged_source(here: Scratch, place: str, *, only: int | None = None) -> Path:
    """The manifest of a source and its shards, or `only` one of them, each with the size and sha256 it must have."""
    path = here.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    stage_file(uri / SOURCE_MANIFEST, path / SOURCE_MANIFEST)
    shards = listed_shards(path)
    stage_files(
        [
            Download(
                uri=uri / safe_name(shard.path.relative_to(path).as_posix(), uri),
                path=shard.path,
                bytes=shard.bytes,
                sha256=shard.sha256,
            )
            for shard in shards
            if only in (None, shard.index)
        ]
    )
    return path


def staged_root(here: Scratch, place: str) -> Path:
    """A dataset as it lies at a place: its manifests and all files of its folders, listed or not, right or wrong."""
    path = here.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    if not _staged_manifests(uri, path):
        manifest.read_remote(uri)  # says what is wrong with a root that has none
    content = manifest.read_any(path)["content"]
    known = {file["path"]: file["sha256"] for file in listed_files(content)}
    folders = {*content["totals"]["splits"], "rejects"}
    downloads = []
    for entry in list_objects(uri):
        name = entry.uri.key.removeprefix(f"{uri.key}/" if uri.key else "")
        if name.split("/")[0] in folders:
            target = path / safe_name(name, uri)
            # What an earlier run staged is kept only when it is what the manifest says; validation judges the rest.
            if not (target.is_file() and known.get(name) == sha256_file(target)):
                downloads.append(Download(uri=entry.uri, path=target, bytes=entry.bytes))
    stage_files(downloads)
    return path


def _staged_manifests(uri: Uri, directory: Path) -> bool:
    """Brings `manifest.json` and `manifest.pending.json` as they are at the root now. Whether one of them is there."""
    there = False
    for name in (manifest.MANIFEST_NAME, manifest.PENDING_NAME):
        data = read_object(uri / name)
        (directory / name).unlink(missing_ok=True)
        if data is not None:
            write_atomically(directory / name, data)
            there = True
    return there


def _staged_views(uri: Uri, directory: Path) -> dict[str, bytes]:
    """Brings report and card as they are at the root now: a card that somebody edited is not to be replaced."""
    standing = {}
    for name in VIEW_NAMES:
        (directory / name).unlink(missing_ok=True)
        if (data := read_object(uri / name)) is not None:
            write_atomically(directory / name, data)
            standing[name] = data
    return standing


def _staged_chat_tokenizer(here: Scratch, place: str | None) -> Path | None:
    """A tokenizer's JSON file, or the asset, whatever the object is called; it is told apart when it is loaded."""
    if place and is_uri(place) and parse_uri(place).name != ASSET_NAME and find(parse_uri(place)) is not None:
        return here.file(place)
    return _staged_tokenizer(here, place)


def _staged_tokenizer(here: Scratch, place: str | None) -> Path | None:
    if not place:
        return None
    if not is_uri(place):
        return Path(place)
    uri = parse_uri(place)
    if uri.name != ASSET_NAME and find(uri) is None:
        uri = uri / ASSET_NAME  # a folder, as on a disk
    require(uri, remedy="name the asset or its folder, or leave --tokenizer away where the image carries it")
    return stage_file(uri, here.path(str(uri)), bytes=ASSET_BYTES, sha256=ASSET_SHA256)
