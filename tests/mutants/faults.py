"""Faults that a careless change could make, each of which the tests must find.

In: nothing. Out: `FAULTS`. Each replaces one piece of text, which is in its module exactly once, by another. The
texts are of expressions, never of import lines, so that a module may be moved by changing its name here alone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One change of one module.

    module  dotted, `spanloom.…`
    old     text that is in the module exactly once
    new     what takes its place; it must still be a module that can be imported
    why     what is wrong with it
    tests   node ids of pytest, from the repository's root, of which one must fail; together they take seconds
    raises  names of exceptions that count beside assertions and Spanloom's own errors
    """

    name: str
    module: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    raises: tuple[str, ...] = ()


FAULTS: tuple[Fault, ...] = (
    # --- What `import spanloom` offers ---
    Fault(
        name="documents-with-masks-of-labels",
        module="spanloom.api.documents",
        old='mask = shift_to_tokens(arrays["lossmask"], lengths)',
        new='mask = arrays["lossmask"]',
        why="users would train the token before each trained one",
        tests=("tests/api/test_documents.py",),
    ),
    # --- Rows with too long documents ---
    Fault(
        name="a-document-of-the-greatest-length-left-out",
        module="spanloom.families.harmony.render.rows",
        old="if size > longest}",
        new="if size >= longest}",
        why="a document that is just short enough would be missing",
        tests=("tests/building/test_longest.py::test_longer_documents_are_left_out",),
    ),
    Fault(
        name="long-rows-use-up-max-rejects",
        module="spanloom.conversations.source.rejects",
        old="if reason not in NO_FAULTS)",
        new="if reason)",
        why="a build with --longest would stop at the first long row",
        tests=("tests/building/test_longest.py::test_longer_documents_are_left_out",),
        raises=("TypeError",),
    ),
    # --- Commands that are run again ---
    Fault(
        name="same-without-a-look-at-the-files",
        module="spanloom.storage.folders.repeated",
        old="not is_regular(path) or sha256_file(path) != sha256",
        new="not is_regular(path)",
        why="a damaged result would count as done",
        tests=("tests/storage/test_repeated.py",),
    ),
    Fault(
        name="replaced-before-the-new-one-is-complete",
        module="spanloom.storage.folders.repeated",
        old="if name not in moved]",
        new="]",
        why="a run after a kill would remove new files that were moved up already",
        tests=("tests/storage/test_repeated.py",),
    ),
    Fault(
        name="files-of-others-replaced-without-a-word",
        module="spanloom.storage.folders.repeated_files",
        old="if not overwrite and (others",
        new="if overwrite and (others",
        why="an export would replace another one that nobody asked it to",
        tests=("tests/storage/test_repeated_files.py",),
        raises=("FileExistsError",),
    ),
    Fault(
        name="small-files-of-the-hub-unchecked",
        module="spanloom.storage.stores.hub",
        old="return git.hexdigest() == stored.version",
        new="return True",
        why="damage on the way would be read as data",
        tests=("tests/storage/test_hub.py::test_damage_on_the_way_is_found_and_downloaded_again",),
    ),
    # --- Before a pipeline, and a service under load ---
    Fault(
        name="the-last-fault-of-a-preflight-alone",
        module="spanloom.building.preflight.checks",
        old="faults.setdefault(str(known), known)",
        new="faults = {str(known): known}",
        why="users would fix one fault of a pipeline after the other",
        tests=("tests/building/test_preflight.py::test_all_faults_come_at_once_each_with_its_remedy",),
    ),
    Fault(
        name="a-probe-that-stays",
        module="spanloom.building.preflight.places",
        old="keep_trying(lambda: store.delete(stored), store=store, uri=uri)",
        new="pass",
        why="each run would leave a file in the dataset",
        tests=("tests/building/test_preflight.py::test_an_output_takes_a_file_and_is_left_as_it_was",),
    ),
    Fault(
        name="all-that-waits-is-taken",
        module="spanloom.service.work",
        old="if self._under_way >= THREADS + WAITING:",
        new="if False:",
        why="memory and waiting would grow with the clients",
        tests=(
            "tests/service/test_work.py::test_two_are_at_work_as_many_wait_as_may_and_the_next_is_told_to_come_again",
        ),
    ),
    Fault(
        name="tokenizers-loaded-without-a-trial",
        module="spanloom.tokenizers.trial",
        old="if digest in _tried or note.is_file():",
        new="if True:",
        why="a hostile tokenizer.json would end the process that loads it",
        tests=("tests/tokenizers/test_trial.py::test_a_file_is_loaded_within_limits_before_it_is_loaded_here",),
    ),
    # --- The small modules at the bottom ---
    Fault(
        name="shift-to-the-right",
        module="spanloom.supervision",
        old="shifted[:-1] = values[1:]",
        new="shifted[1:] = values[:-1]",
        why="supervision would describe the token before, not the label",
        tests=("tests/test_supervision.py",),
    ),
    Fault(
        name="split-threshold-itself",
        module="spanloom.split",
        old="digests < np.uint64(threshold)",
        new="digests <= np.uint64(threshold)",
        why="the digest that equals the threshold would be valid, not train",
        tests=("tests/test_split.py",),
    ),
    Fault(
        name="visible-right-to-left-override",
        module="spanloom.text",
        old=r"\u202a-\u202e\u2066",
        new=r"\u202a-\u202d\u2066",
        why="U+202E would reach a terminal and turn the order of what follows",
        tests=("tests/test_text.py",),
    ),
    Fault(
        name="exit-code-of-lost-output",
        module="spanloom.errors",
        old="exit_code = EXIT_OUTPUT",
        new="exit_code = EXIT_FAILURE",
        why="work that is done and only could not be printed would look like work that failed",
        tests=("tests/cli/test_streams.py::test_the_exit_code_tells_that_it_is_the_output",),
    ),
    Fault(
        name="code-hash-of-other-families",
        module="spanloom.provenance",
        old="parts[1] != family",
        new="parts[1] == family",
        why="a resumed build would keep parts that older code of its own family made",
        tests=("tests/test_provenance.py",),
    ),
    Fault(
        name="executor-output-file",
        module="spanloom.kubeflow",
        old='outputs.get("outputFile")',
        new='outputs.get("output_file")',
        why="no executor output would be written, and Kubeflow would lose the artifacts",
        tests=("tests/test_kubeflow.py::test_a_step_tells_kubeflow_what_it_made",),
        raises=("KeyError",),
    ),
    Fault(
        name="worker-runs-the-script-again",
        module="spanloom.workers",
        old='main.__dict__.pop("__file__", None)',
        new='main.__dict__.get("__file__")',
        why="each worker would run a script without a main guard again",
        tests=("tests/test_workers.py::test_a_script_without_a_guard_runs_once",),
    ),
    # --- Records, tokenizers, Megatron's format ---
    Fault(
        name="json-repeated-key",
        module="spanloom.records.strict_json",
        old="if 2 * _strings(value) == (",
        new="if 2 * _strings(value) <= (",
        why="of a repeated key the last value would silently count",
        tests=("tests/records/test_strict_json.py",),
    ),
    Fault(
        name="json-lines-long-integer",
        module="spanloom.records.json_lines",
        old='b"0" * 19',
        new='b"0" * 20',
        why="an integer of 19 digits below the smallest of 64 bits would become a float",
        tests=("tests/records/test_json_lines.py",),
    ),
    Fault(
        name="parquet-page-checksums",
        module="spanloom.records.parquet",
        old="page_checksum_verification=True",
        new="page_checksum_verification=False",
        why="a damaged page would be read as if it were right",
        tests=("tests/records/test_parquet.py",),
    ),
    Fault(
        name="template-opens-files",
        module="spanloom.tokenizers.rendering.serve",
        old='"RLIMIT_NOFILE": 0',
        new='"RLIMIT_NOFILE": 64',
        why="a template that escapes from the sandbox could read files",
        tests=(
            "tests/tokenizers/rendering/test_process.py::test_it_may_open_and_write_no_file_and_has_the_limit_of_memory",
        ),
    ),
    Fault(
        name="template-memory-refused",
        module="spanloom.tokenizers.rendering.serve",
        old="    except MemoryError:\n        raise\n",
        new="",
        why="a lack of memory would be counted as a refusal: the documents would depend on the machine",
        tests=("tests/tokenizers/rendering/test_process.py::test_memory_has_its_line",),
    ),
    Fault(
        name="template-process-shared-by-forks",
        module="spanloom.tokenizers.rendering.process",
        old="after_in_child=_forget_all",
        new="after_in_child=list",
        why="a fork would read the replies to its parent's requests",
        tests=("tests/tokenizers/rendering/test_process.py::test_a_fork_has_a_process_of_its_own",),
    ),
    Fault(
        name="template-delay-never-temporary",
        module="spanloom.tokenizers.rendering.process",
        old="if delayed and self._rendered[source] else",
        new="if not delayed else",
        why="a build on a machine under load would not be tried again",
        tests=(
            "tests/tokenizers/rendering/test_process.py::test_a_delay_is_temporary_where_the_template_has_rendered_before",
        ),
    ),
    Fault(
        name="template-reply-left-behind",
        module="spanloom.tokenizers.rendering.process",
        old="            self._end()\n            raise\n        for reply",
        new="            raise\n        for reply",
        why="after Ctrl-C in a notebook, each rendering would have the text of the one before",
        tests=("tests/tokenizers/rendering/test_process.py::test_ctrl_c_is_the_parents_and_no_reply_is_left_behind",),
        raises=("TimeoutExpired",),
    ),
    Fault(
        name="paths-with-leaves-of-an-earlier-prefix",
        module="spanloom.tokenizers.template_paths.prefixes",
        old="towards = (total > 0) == (factor < 0)",
        new="towards = (total > 0) != (factor < 0)",
        why="messages would keep the text that they had in a shorter prefix, with a thought that the template drops",
        tests=(
            "tests/tokenizers/template_paths/test_prefixes.py::test_leaves_of_all_prefixes_write_the_texts_of_jinja",
        ),
    ),
    Fault(
        name="paths-of-safe-texts",
        module="spanloom.tokenizers.template_paths.environment",
        old='raise Unloggable("a text that is marked as safe escapes what is joined to it")',
        new="pass",
        why="a text that Jinja escapes would be written as it is",
        tests=("tests/tokenizers/template_paths/test_attacks.py",),
    ),
    Fault(
        name="index-pointers",
        module="spanloom.megatron.indexed",
        old="yield ends - sizes",
        new="yield ends",
        why="each byte pointer would be that of the next sequence",
        tests=("tests/megatron/test_indexed.py::test_an_index_byte_by_byte",),
    ),
    # --- Storage ---
    Fault(
        name="object-create-only",
        module="spanloom.storage.stores.s3",
        old='{} if sending.replace else {"IfNoneMatch": "*"}',
        new='{"IfNoneMatch": "*"} if sending.replace else {}',
        why="an object that another build wrote would be overwritten",
        tests=("tests/storage/test_objects.py::test_the_precondition_itself_keeps_what_stands",),
    ),
    Fault(
        name="retry-of-504",
        module="spanloom.storage.stores.s3",
        old="status >= 500 and status != 501",
        new="status > 504 and status != 501",
        why="a 504 would stop a transfer that is to be tried again",
        tests=("tests/storage/test_lying_downloads.py::test_a_lie_about_the_bytes[s3-504]",),
    ),
    Fault(
        name="staged-by-the-objects-own-word",
        module="spanloom.storage.staging",
        old="download.sha256 or stored.metadata.get(SHA256_KEY)",
        new="stored.metadata.get(SHA256_KEY) or download.sha256",
        why="a file would be held against what its object says of itself, not against the manifest",
        tests=("tests/storage/test_objects.py::test_a_size_or_a_hash_that_is_not_the_expected_one_leaves_no_file",),
    ),
    # --- Datasets ---
    Fault(
        name="lock-that-is-shared",
        module="spanloom.storage.locks",
        old="fcntl.LOCK_EX | fcntl.LOCK_NB",
        new="fcntl.LOCK_SH | fcntl.LOCK_NB",
        why="two builds could work in one root at the same time",
        tests=("tests/dataset/root/test_lock.py",),
    ),
    Fault(
        name="inventory-longest",
        module="spanloom.dataset.root.inventory",
        old="longest=max(count.longest for count in counts)",
        new="longest=sum(count.longest for count in counts)",
        why="the longest document of a split would be as long as those of all shards together",
        tests=("tests/dataset/root/test_inventory.py",),
    ),
    Fault(
        name="row-numbers-begin-again",
        module="spanloom.dataset.rows.table",
        old="np.arange(self._written + self._buffered, self._written + self._buffered + about.num_rows)",
        new="np.arange(self._buffered, self._buffered + about.num_rows)",
        why="row numbers would not go on behind the first group of 65,536 rows",
        tests=("tests/dataset/rows/test_table.py",),
    ),
    Fault(
        name="packing-bound",
        module="spanloom.dataset.plan.bin_packing",
        old='- sizes[units] + length, side="right")',
        new='- sizes[units] + length + 1, side="right")',
        why="sequences could hold one position more than their length",
        tests=("tests/dataset/plan/test_bin_packing.py",),
    ),
    Fault(
        name="export-ignored-label",
        module="spanloom.dataset.export.parquet",
        old="np.where(loss_mask > 0, tokens, np.int32(IGNORED))",
        new="np.where(loss_mask > 0, tokens, np.int32(0))",
        why="trainers would learn token 0 wherever nothing is to be learned",
        tests=("tests/dataset/export/test_parquet.py::test_datasets_loads_what_lies_on_disk",),
    ),
    # --- Above datasets ---
    Fault(
        name="promoted-with-findings",
        module="spanloom.building.conclude",
        old="if pending and report.clean:",
        new="if pending:",
        why="a dataset that did not validate would get its manifest",
        tests=("tests/families/chat/test_dataset.py::test_only_a_clean_validation_promotes",),
    ),
    Fault(
        name="source-not-asked-for",
        module="spanloom.steps.assemble_validation",
        old="needs_source=source is not None",
        new="needs_source=False",
        why="shards that were never compared with the source would pass as compared",
        tests=(
            "tests/dataset/validate/test_by_shard_all_families.py::"
            "test_reports_with_and_without_the_source_are_not_joined",
        ),
    ),
    Fault(
        name="wire-of-the-plain-mask",
        module="spanloom.training.megatron_dataset",
        old='self._read("span", np.float32, length)',
        new='self._read("lossmask", np.float32, length)',
        why="every trained label would travel as span 1",
        tests=("tests/training/test_megatron_dataset.py::test_the_wire_carries_the_span_in_the_mask",),
    ),
    Fault(
        name="counts-of-the-last-micro-batch",
        module="spanloom.training.batch",
        old="counts = own if counts is None else counts + own",
        new="counts = own",
        why="means would be those of the last micro-batch, not of the step",
        tests=("tests/training/test_loss.py::test_a_step_is_read_before_its_first_micro_batch_is_given_out",),
    ),
    Fault(
        name="oldest-checkpoint",
        module="spanloom.training.runs.checkpoint",
        old="in reversed(_finished(output)):",
        new="in _finished(output):",
        why="a run would go on from its oldest checkpoint",
        tests=("tests/training/test_checkpoint.py::test_the_newest_whole_checkpoint_is_taken_and_nothing_is_said",),
    ),
    Fault(
        name="pages-without-escapes",
        module="spanloom.report.pages.html",
        old="autoescape=True",
        new="autoescape=False",
        why="markup in a document would run in the browser",
        tests=("tests/report/pages/test_html.py",),
    ),
    Fault(
        name="any-token-will-do",
        module="spanloom.service.access",
        old='self._wanted) or scheme.lower() != b"bearer"',
        new='self._wanted) and scheme.lower() != b"bearer"',
        why="any bearer token would be taken",
        tests=("tests/service/test_application.py::test_a_token_is_asked_of_all_but_probes",),
        raises=("KeyError",),
    ),
    Fault(
        name="body-in-pieces",
        module="spanloom.service.limits",
        old='read += len(message.get("body", b""))',
        new='read = len(message.get("body", b""))',
        why="a body that comes in pieces could be of any size",
        tests=("tests/service/test_limits.py",),
    ),
    Fault(
        name="command-forgets-an-option",
        module="spanloom.cli.declared",
        old="for each in of if each in values}",
        new="for each in of if each in values and each != 'think'}",
        why="`chat generate --think drop` would refuse what it was told to leave out",
        tests=("tests/cli/test_chat.py::test_the_end_of_a_run_says_what_was_lost",),
    ),
    Fault(
        name="value-without-a-key",
        module="spanloom.options.option",
        old="if not equals or not name:",
        new="if not equals:",
        why="`--set =1` would set a variable without a name",
        tests=("tests/options/test_keywords.py::test_values_are_json_or_texts",),
    ),
    Fault(
        name="option-not-passed-on",
        module="spanloom.api.building",
        old='"shards", "on_duplicate", "deep"',
        new='"shards", "deep"',
        why="`build --on-duplicate keep` would stop at the first copy",
        tests=("tests/cli/test_harmony.py::test_every_option_of_build_reaches_the_build",),
    ),
    # --- Conversations ---
    Fault(
        name="two-ids-of-a-row",
        module="spanloom.conversations.source.structure",
        old="inner is not None and value != inner:",
        new="inner is not None and not value:",
        why="a row whose column and metadata name two ids would be taken",
        tests=("tests/conversations/source/test_structure.py",),
    ),
    # --- Harmony ---
    Fault(
        name="good-rows-rejected",
        module="spanloom.conversations.source.structure",
        old="if not isinstance(channel, str) or channel not in source_format.span_of_channel:",
        new='if not message.get("content") or channel not in source_format.span_of_channel:',
        why="rows with an empty answer would be set aside, which only rules of validation's own can tell",
        tests=(
            "tests/families/harmony/verify/test_rules.py::"
            "test_what_a_build_rejects_is_judged_by_rules_of_validations_own",
        ),
    ),
    Fault(
        name="control-tokens-of-texts-not-looked-at",
        module="spanloom.families.harmony.verify.structure.messages",
        old="in_text = inside & (specials > bodies[message])",
        new="in_text = inside & (specials > closes[message])",
        why="validation would let an end of a message stand inside a text",
        tests=("tests/families/harmony/verify/test_order.py",),
    ),
    Fault(
        name="history-shows-old-reasoning",
        module="spanloom.families.harmony.contract.history",
        old="yield last_final",
        new="yield first_final",
        why="documents would show reasoning that servers have dropped",
        tests=("tests/families/harmony/contract/test_history.py::test_what_each_document_shows_and_trains",),
    ),
    Fault(
        name="commentary-as-final",
        module="spanloom.conversations.source.format",
        old="{channel: span for span, channel in",
        new="{channel: min(span, 2) for span, channel in",
        why="tool calls would be weighed as answers",
        tests=("tests/conversations/source/test_structure.py",),
    ),
    Fault(
        name="eod-is-trained",
        module="spanloom.families.harmony.render.official",
        old="spans += (span, _CONTEXT)",
        new="spans += (span, span[-1:])",
        why="the end of a document would carry loss",
        tests=("tests/families/harmony/render/test_official.py::test_a_conversation_token_by_token",),
    ),
    Fault(
        name="duplicates-beyond-the-first-shard",
        module="spanloom.building.shards.ids",
        old="seen: dict[bytes, tuple[int, int]] = {}\n        for shard in shards:",
        new="seen: dict[bytes, tuple[int, int]] = {}\n        for shard in shards[:1]:",
        why="an id that is in a later shard a second time would not be noticed",
        tests=("tests/families/harmony/steps/test_assemble_split.py",),
    ),
    Fault(
        name="part-key-without-the-shard",
        module="spanloom.families.harmony.recipe",
        old='key=f"{shard.sha256}, row groups',
        new='key=f"row groups',
        why="a resumed build would keep parts of a shard that was replaced meanwhile",
        tests=("tests/families/harmony/test_recipe.py",),
    ),
    # --- Packed chat ---
    Fault(
        name="injected-user-counts-as-whole",
        module="spanloom.families.chat.blocks.masks",
        old="== injected[row] - 1)",
        new="== injected[row])",
        why="an answer to a user span that was cut would carry loss",
        tests=("tests/families/chat/test_packing.py::test_packing_equals_the_rules_read_token_by_token",),
    ),
    Fault(
        name="loader-gives-a-block-twice",
        module="spanloom.families.chat.loader",
        old='place["blocks"] + number + 1',
        new='place["blocks"] + number',
        why="a run that goes on would get the block before its place again",
        tests=("tests/families/chat/test_loader.py::TestResume",),
    ),
    # --- Traces ---
    Fault(
        name="true-is-one",
        module="spanloom.families.traces.store.selection",
        old="(is_number(left) and is_number(right))",
        new="(left is not None and right is not None)",
        why="a filter for 1 would pass traces that say true",
        tests=("tests/families/traces/test_build.py::test_null_matches_absent_keys_and_objects_compare_deep",),
    ),
    Fault(
        name="answer-weighed-as-reasoning",
        module="spanloom.families.traces.encoding.tokens",
        old="start + len(render.reasoning(texts))",
        new="start + len(render.response(texts))",
        why="the answer would have the span of the reasoning",
        tests=(
            "tests/families/traces/test_tokens.py::test_with_a_token_for_each_character_spans_are_as_long_as_their_texts",
        ),
    ),
    # --- Any model ---
    Fault(
        name="last-turn-trains-all",
        module="spanloom.families.models.documents.made",
        old='{**message, "trained": False}',
        new="{**message}",
        why="--turns last would train the answers of earlier turns too",
        tests=("tests/families/models/test_last_turn.py",),
    ),
    Fault(
        name="paths-that-are-not-checked",
        module="spanloom.families.models.documents.prover",
        old="if not _equal(found.proven, proven):",
        new="if not found.proven:",
        why="wrong documents by path would stay in a dataset",
        tests=("tests/families/models/test_prover.py",),
    ),
    Fault(
        name="parts-by-paths-kept-by-the-full-proof",
        module="spanloom.families.models.recipe",
        old='{} if self.rules.proof == defaults.PATHS else {"proof": self.rules.proof}',
        new="{}",
        why="a build would keep parts that wrong paths made",
        tests=("tests/families/models/test_prover.py",),
    ),
    Fault(
        name="paths-that-other-texts-change",
        module="spanloom.families.models.paths.independent",
        old="        if changes:",
        new="        if changes is None:",
        why="a run would be made by path that the full proof refuses, since its texts decide the frame",
        tests=("tests/families/models/test_paths.py",),
    ),
    Fault(
        name="paths-with-spans-of-the-text-before",
        module="spanloom.families.models.paths.runs",
        old="numbers.append(span[part.kind])",
        new="numbers.append(SPAN_FINAL)",
        why="reasoning would be in the span of the answer",
        tests=("tests/families/models/test_paths.py",),
    ),
    Fault(
        name="paths-cut-at-tokens-that-take-white-space",
        module="spanloom.families.models.paths.clean",
        old='token.get("lstrip") or token.get("rstrip")',
        new='token.get("lstrip")',
        why="white space behind a cut would become a token of its own",
        tests=("tests/families/models/test_paths.py::test_tokens_that_overlap_or_take_white_space_are_not_cut_at",),
    ),
    Fault(
        name="end-of-turn-not-taken",
        module="spanloom.families.models.prove.turn_end",
        old="if offsets[place][0] >= last:",
        new="if offsets[place][0] > last:",
        why="a stop token right behind the answer would not be taken as the end of its turn",
        tests=(
            "tests/families/models/test_prove.py::test_what_the_model_samples_is_trained_with_the_token_that_ends_its_turn",
        ),
    ),
    Fault(
        name="path-for-another-outcome",
        module="spanloom.tokenizers.template_paths.paths",
        old="following = node.outcomes.get(evaluate(*values))",
        new="following = next(iter(node.outcomes.values()), None)",
        why="a conversation would be written by the frame of the first one that was rendered",
        tests=("tests/tokenizers/template_paths/test_attacks.py",),
    ),
    # --- Lists of tasks ---
    Fault(
        name="option-without-a-value",
        module="spanloom.tasks.stage",
        old="for option, value in options if value for word",
        new="for option, value in options for word",
        why="a step would get an empty text for an option that nobody gave",
        tests=("tests/tasks/test_stage.py::test_an_option_without_a_value_is_left_out",),
    ),
    # --- Tool calls ---
    Fault(
        name="rule-of-retained-security",
        module="spanloom.families.toolcalls.rules",
        old="security is False and safe is not True)",
        new="security is False and safe is True)",
        why="a retained sample whose attack succeeded would have no finding L5",
        tests=("tests/families/toolcalls/test_docs.py::test_each_example_has_its_finding",),
    ),
    # --- Chess ---
    Fault(
        name="castling-to-the-wrong-rook",
        module="spanloom.families.chess.encoding.moves",
        old='("e8c8", E8, "e8a8")',
        new='("e8c8", E8, "e8h8")',
        why="long castling of black would be the token of short castling",
        tests=("tests/families/chess/encoding/test_moves.py",),
    ),
    Fault(
        name="games-dealt-by-file",
        module="spanloom.families.chess.reading.epochs",
        old="games[(shard - before) % shards :: shards]",
        new="games[shard::shards]",
        why="with fewer files than shards some shards would get more games than others",
        tests=("tests/families/chess/reading/test_epochs.py",),
    ),
    # --- Validation of texts ---
    Fault(
        name="texts-with-their-tokens-late",
        module="spanloom.tokenizers.token_texts",
        old="begins = self.characters[edges[:-1]] - inside - start",
        new="begins = self.characters[edges[:-1]] - start",
        why="a token inside a character would begin behind it, and spans at its place be found wrong",
        tests=("tests/tokenizers/test_token_texts.py",),
    ),
    Fault(
        name="answers-that-end-anywhere",
        module="spanloom.families.toolcalls.verify.frames",
        old="if stop in self.stops and self.text.endswith(behind):",
        new="if stop in self.stops:",
        why="an answer whose end token is not trained would pass",
        tests=("tests/families/toolcalls/test_forgeries.py",),
    ),
    Fault(
        name="blocks-in-any-order",
        module="spanloom.families.chat.verify.sequence",
        old="if stream.whole and blocks.tokens[block, :injected].tolist() != wanted:",
        new="if not wanted and blocks.tokens[block, :injected].tolist() != wanted:",
        why="a block that begins without its copies would pass",
        tests=("tests/families/chat/test_forgeries.py",),
    ),
    # --- A teacher ---
    Fault(
        name="labels-of-a-teacher-one-early",
        module="spanloom.teacher.positions",
        old="labels=tokens[positions + 1]",
        new="labels=tokens[positions]",
        why="each log-probability would be that of the token before the label",
        tests=("tests/teacher/test_score.py",),
    ),
    Fault(
        name="entries-of-the-token-before-a-label",
        module="spanloom.teacher.sources.answers",
        old="places = document.positions + 1",
        new="places = document.positions",
        why="servers' log-probabilities would be one token early",
        tests=("tests/teacher/test_answers.py",),
    ),
    Fault(
        name="shifted-entries-pass",
        module="spanloom.teacher.validate",
        old="if best != 0 and shares[best]",
        new="if best > 1 and shares[best]",
        why="signals that are one label off would be called clean",
        tests=("tests/teacher/test_faults.py",),
    ),
    Fault(
        name="rest-of-the-student-without-a-gradient",
        module="spanloom.training.distillation.loss",
        old="total = grad.sum(-1)",
        new="total = grad[:, :-1].sum(-1)",
        why="probability outside of the top k would not be taken away",
        tests=("tests/training/test_distillation.py",),
    ),
    # --- Audit ---
    Fault(
        name="duplicates-that-are-not",
        module="spanloom.auditing.duplicates",
        old="yield records[1:][same]",
        new="yield records[1:][~same]",
        why="documents that differ would be called duplicates, and duplicates would not",
        tests=("tests/audit/test_faults.py",),
    ),
    # --- Law ---
    Fault(
        name="stop-token-not-looked-at",
        module="spanloom.law.judging",
        old="findings.add(classes.STOP_UNTRAINED, frames.stops[stop_lost] - 1)",
        new="findings.add(classes.STOP_UNTRAINED, frames.stops[stop_lost][:0])",
        why="a model that never learns to end its turn would pass the audit",
        tests=("tests/audit/test_faults.py",),
    ),
)
