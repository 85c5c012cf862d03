"""The example trainer: what is masked adds nothing, warm-up restarts with the data, a pass resumes and ends."""

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

from spanloom.families.chat.loader import PackedChatDataset, collate
from spanloom.families.chat.packing import pack
from spanloom.training.runs.script import process_group
from spanloom.training.runs.step import figures_of, update
from support import examples
from support.chat_transcripts import MARKERS, VOCAB_SIZE, A, E, U, X, text_records, token_records, write_tokenizer
from support.nightly import nightly
from support.ranks import run_ranks

B, BATCH, PEAK, SHARE = 32, 8, 0.01, 0.1
OPTIONS: dict[str, Any] = {
    "block-size": B,
    "batch-size": BATCH,
    "learning-rate": PEAK,
    "warmup-pct": SHARE,
    "shuffle": 50,
    "layers": 1,
    "hidden": 32,
    "heads": 2,
    "save-interval": 7,
    "keep": 100,
}
NUMBER = 300
CHAT = examples.load(examples.CHAT)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transcripts in `chats.jsonl`, others in `more.jsonl`, and their tokenizer."""
    folder = tmp_path_factory.mktemp("data")
    for name, seed in (("chats", 0), ("more", 1)):
        lines = (json.dumps({"text": text}) + "\n" for text in text_records(NUMBER, seed=seed))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    write_tokenizer(folder / "letters.json")
    return folder


def arguments(data: Path, output: Path, *flags: str, name: str = "chats", **changes: Any) -> list[str]:
    options = {**OPTIONS, **{key.replace("_", "-"): value for key, value in changes.items()}}
    places = [f"--input={data / name}.jsonl", f"--tokenizer={data / 'letters.json'}", f"--output={output}"]
    return [*places, *(f"--{key}={value}" for key, value in options.items()), *flags]


def run(data: Path, output: Path, *flags: str, **changes: Any) -> list[dict[str, Any]]:
    assert examples.main(examples.CHAT, arguments(data, output, *flags, **changes)) == 0
    return log(output)


def log(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def unbroken(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("unbroken") / "output"
    run(data, output, "--post-training")
    return output


def blocks_of(records: list[list[int]], **changes: Any) -> tuple[int, int]:
    """How many blocks the records give as one stream, and how many of their targets carry loss."""
    stream = [token for record in records for token in record]
    blocks, _ = pack(stream, **{"block_size": B, "markers": MARKERS, **changes})
    return len(blocks), int(blocks.loss_mask[:, 1:].sum())


class TestLoss:
    def batch(self) -> dict[str, torch.Tensor]:
        options = {"block_size": B, "post_training": True, "markers": MARKERS}
        samples = list(PackedChatDataset(token_records(40), **options))[:6]
        return collate(samples)

    def test_masked_tokens_give_minus_100(self) -> None:
        record = [U, 20, E, A, 21, E, X]
        (sample,) = PackedChatDataset([record], block_size=7, post_training=True, markers=MARKERS)
        assert sample["targets"].tolist() == [-100, -100, A, 21, E, -100]
        batch = self.batch()
        masked = batch["loss_mask"][:, 1:] == 0
        assert 0 < int(masked.sum()) < masked.numel()
        assert (batch["targets"][masked] == -100).all()
        assert torch.equal(batch["targets"][~masked], batch["input_ids"][:, 1:][~masked])

    def gradient(self, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """The example's, of a step with these targets."""
        model = small()
        batch = {**self.batch(), "targets": targets, "loss_mask": targets != -100, "span_id": (targets != -100).long()}
        figures = figures_of(model, [batch], CHAT.TRAINED)
        assert figures["trained_tokens"] == int((targets != -100).sum())
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    def test_the_gradient_is_that_of_the_mean_over_the_trained_positions_alone(self) -> None:
        batch, model = self.batch(), small()
        chosen = log_softmax(logits_of(model, batch), -1)[batch["loss_mask"][:, 1:] == 1]
        labels = batch["input_ids"][:, 1:][batch["loss_mask"][:, 1:] == 1]
        (-chosen.gather(1, labels[:, None]).mean()).backward()
        found = self.gradient(batch["targets"])
        for name, parameter in model.named_parameters():
            assert float(parameter.grad.abs().max()) > 0
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-5, atol=1e-6)

    def test_what_stands_at_masked_labels_changes_nothing(self) -> None:
        """The labels where nothing counts are replaced by others before the mask is laid over them."""
        batch = self.batch()
        masked = batch["loss_mask"][:, 1:] == 0
        labels = batch["input_ids"][:, 1:].clone()
        others = torch.where(masked, (labels + 1) % VOCAB_SIZE, labels)
        assert (others != labels).any()
        gradients = [self.gradient(each.masked_fill(masked, -100)) for each in (labels, others)]
        assert all(torch.equal(gradients[0][name], gradients[1][name]) for name in gradients[0])

    def test_without_any_target_the_loss_is_zero_and_so_is_its_gradient(self) -> None:
        gradient = self.gradient(torch.full_like(self.batch()["targets"], -100))
        assert not any(each.any() for each in gradient.values())

    def test_attention_ends_at_eos_where_positions_are_given(self) -> None:
        """Another conversation before an EOS changes what follows it only without the cut."""
        model = small()
        one, other = [20, 21, X, 22, 23, 24], [30, 31, X, 22, 23, 24]
        positions = torch.tensor([[0, 1, 2, 0, 1, 2]])
        cut = losses(model, one, position_ids=positions)[:, 3:], losses(model, other, position_ids=positions)[:, 3:]
        torch.testing.assert_close(*cut)
        torch.testing.assert_close(cut[0], losses(model, [22, 23, 24]))
        assert (losses(model, one)[:, 3:] - losses(model, other)[:, 3:]).abs().max() > 1e-4

    def test_no_position_sees_what_comes_after_it(self) -> None:
        model = small()
        torch.testing.assert_close(losses(model, [20, 21, 22, 23])[:, :1], losses(model, [20, 21, 30, 31])[:, :1])


def small() -> Any:
    torch.manual_seed(5)
    return CHAT.SmallTransformer(vocab_size=VOCAB_SIZE, layers=2, hidden=32, heads=2)


def losses(model: Any, tokens: list[int], **more: torch.Tensor) -> torch.Tensor:
    """The loss of each label of one block, all of them trained."""
    ids = torch.tensor([tokens])
    found: torch.Tensor = model({"input_ids": ids, "targets": ids[:, 1:], **more})
    return found


def logits_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """log p of each token at each position: the losses with that token as the label everywhere, [N, S, vocabulary]."""
    each = (model({**batch, "targets": torch.full_like(batch["targets"], token)}) for token in range(VOCAB_SIZE))
    return -torch.stack(list(each), dim=-1)


def test_a_step_goes_along_the_mean_over_its_trained_tokens() -> None:
    """Plain gradient descent, so that the size of the gradient shows, and not its direction alone."""
    batch = TestLoss().batch()
    own = {**batch, "loss_mask": batch["targets"] != -100, "span_id": (batch["targets"] != -100).long()}
    models = [small(), small()]
    with process_group():
        descent = torch.optim.SGD(models[0].parameters(), lr=1.0)
        figures = figures_of(models[0], [own], CHAT.TRAINED)
        update(models[0], descent, 0.25, clip=math.inf)
    trained = batch["loss_mask"][:, 1:] == 1
    loss = models[1](batch)[trained].mean()
    loss.backward()
    assert figures["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)
    assert (figures["trained_tokens"], figures["samples"]) == (int(trained.sum()), 6)
    for ours, expected in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours, expected - 0.25 * expected.grad, rtol=1e-5, atol=1e-7)


class TestPass:
    def test_it_ends_when_the_loader_ends_each_block_once(self, unbroken: Path) -> None:
        records = log(unbroken)
        blocks = sum(record["samples"] for record in records)
        # Shuffling changes a stream's blocks by a few; what is in it stays.
        plain, _ = blocks_of(token_records(NUMBER))
        assert abs(blocks - plain) < 0.05 * plain
        assert [record["samples"] for record in records] == [BATCH] * (blocks // BATCH) + [blocks % BATCH] * (
            blocks % BATCH > 0
        )
        assert [record["step"] for record in records] == list(range(1, math.ceil(blocks / BATCH) + 1))

    def test_with_the_switch_off_every_token_counts_and_nothing_is_injected(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stream = sum(len(record) for record in token_records(NUMBER))
        monkeypatch.delenv("POST_TRAINING", raising=False)
        off = run(data, tmp_path / "off")
        assert "POST_TRAINING is off" in capsys.readouterr().out
        assert sum(record["samples"] for record in off) == stream // B
        assert all(record["trained_tokens"] == record["samples"] * (B - 1) for record in off)
        monkeypatch.setenv("POST_TRAINING", "1")
        on = run(data, tmp_path / "on", shuffle=0)
        assert "POST_TRAINING is on" in capsys.readouterr().out
        blocks, trained = blocks_of(token_records(NUMBER))
        assert sum(record["samples"] for record in on) == blocks
        assert sum(record["trained_tokens"] for record in on) == trained
        flagged = run(data, tmp_path / "flag", "--no-post-training")
        assert flagged == off, "the flag is stronger than the variable"

    def test_the_loss_of_the_first_step_is_the_mean_over_its_trained_tokens(self, unbroken: Path) -> None:
        """A model that knows nothing yet gives all tokens about the same likelihood."""
        first = log(unbroken)[0]
        assert first["loss"] == pytest.approx(math.log(VOCAB_SIZE), abs=0.1)

    def test_only_what_carries_loss_is_learned(self, data: Path, tmp_path: Path) -> None:
        """Answers are always "abcd", questions are never the same: in the end answers cost nothing, questions do."""
        questions = np.random.default_rng(0).integers(0, 20, (2000, 6))
        lines = [
            f"<|USER|>{''.join(chr(ord('a') + letter) for letter in question)}<|END|><|ASSISTANT|>abcd<|END|>"
            for question in questions
        ]
        (tmp_path / "same.txt").write_text("\n".join(lines) + "\n")
        places = [f"--input={tmp_path / 'same.txt'}", f"--tokenizer={data / 'letters.json'}"]
        losses = {}
        for flag in ("--post-training", "--no-post-training"):
            output = tmp_path / flag.strip("-")
            flags = [f"--{key}={value}" for key, value in {**OPTIONS, "batch-size": 4}.items()]
            assert examples.main(examples.CHAT, [*places, f"--output={output}", *flags, flag]) == 0
            losses[flag] = log(output)[-1]["loss"]
        assert losses["--post-training"] < 0.1
        assert losses["--no-post-training"] > 0.8, "questions cannot be learned: 6 of 15 tokens cost ln 20"

    def test_two_ranks_end_together_on_the_same_weights_though_one_has_fewer_blocks(
        self, data: Path, tmp_path: Path
    ) -> None:
        shards = [blocks_of(token_records(NUMBER)[rank::2]) for rank in range(2)]
        batch = next(size for size in range(2, 40) if len({math.ceil(n / size) for n, _ in shards}) == 2)
        given = arguments(data, tmp_path / "output", "--post-training", shuffle=0, batch_size=batch, cut_at_eos="")
        given = [flag if flag != "--cut-at-eos=" else "--cut-at-eos" for flag in given]
        for done in run_ranks("support.script", examples.CHAT, *given, ranks=2):
            assert done.returncode == 0, done.stderr
        records = log(tmp_path / "output")
        assert len(records) == max(math.ceil(blocks / batch) for blocks, _ in shards)
        assert sum(record["samples"] for record in records) == sum(blocks for blocks, _ in shards)
        assert sum(record["trained_tokens"] for record in records) == sum(trained for _, trained in shards)
        last = sorted((tmp_path / "output/checkpoints").iterdir())[-1]
        states = [torch.load(last / f"rank_{rank:02d}.pt", weights_only=True) for rank in range(2)]
        assert all(torch.equal(states[0]["model"][name], states[1]["model"][name]) for name in states[0]["model"])
        assert states[0]["data"] != states[1]["data"]


class TestWarmup:
    def expected(self, steps: int, share: float = SHARE) -> list[float]:
        """Linear up to the peak over ceil(share · steps) steps, then a cosine to a tenth."""
        warmup = math.ceil(share * steps)
        rise = [PEAK * (step + 1) / warmup for step in range(warmup)]
        fall = [
            PEAK * (0.1 + 0.9 * (1 + math.cos(math.pi * step / (steps - warmup))) / 2) for step in range(steps - warmup)
        ]
        return rise + fall

    def rates(self, records: list[dict[str, Any]]) -> list[float]:
        return [record["learning_rate"] for record in records]

    def test_it_rises_over_its_share_of_the_pass_and_falls(self, unbroken: Path) -> None:
        rates = self.rates(log(unbroken))
        assert rates == pytest.approx(self.expected(len(rates)))
        warmup = math.ceil(SHARE * len(rates))
        assert all(one < other for one, other in pairwise(rates[:warmup]))
        assert rates[warmup - 1] == PEAK

    @pytest.mark.parametrize(
        "changed",
        [
            {"block_size": 48},
            {"name": "more"},
            {"flags": ("--no-post-training",)},
            {"flags": ("--post-training", "--no-strict-user")},
        ],
        ids=["block size", "input", "switch", "strict"],
    )
    def test_other_data_restart_it_over_the_share_of_their_pass(
        self, data: Path, unbroken: Path, tmp_path: Path, changed: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = shutil.copytree(unbroken, tmp_path / "output")
        before = log(output)
        options = {"flags": ("--post-training",), **changed}
        records = run(data, output, *options.pop("flags"), **options, warmup_pct=0.25)
        assert "the data changed" in capsys.readouterr().out
        assert records[: len(before)] == before
        rates = self.rates(records[len(before) :])
        assert len(rates) > 10
        assert rates == pytest.approx(self.expected(len(rates), 0.25))
        assert rates[0] < max(rates) == PEAK
        fresh = run(data, tmp_path / "fresh", *changed.get("flags", ("--post-training",)), **options)
        assert records[len(before)]["loss"] < fresh[0]["loss"], "it goes on from the weights"

    def test_another_tokenizer_restarts_it(self, data: Path, unbroken: Path, tmp_path: Path) -> None:
        output = shutil.copytree(unbroken, tmp_path / "output")
        before = len(log(output))
        for name in ("chats.jsonl", "letters.json"):
            shutil.copy(data / name, tmp_path / name)
        other = json.loads((tmp_path / "letters.json").read_text())
        (tmp_path / "letters.json").write_text(json.dumps(other, indent=1))  # other bytes, the same ids
        rates = self.rates(run(tmp_path, output, "--post-training")[before:])
        assert rates == pytest.approx(self.expected(len(rates)))

    def test_the_same_data_elsewhere_go_on_where_they_were(
        self, data: Path, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output, moved = shutil.copytree(unbroken, tmp_path / "output"), shutil.copytree(data, tmp_path / "moved")
        assert run(moved, output, "--post-training") == log(unbroken), "the pass was over, and stays so"
        assert "resumes after step" in capsys.readouterr().out

    def test_none_and_all_of_the_pass(self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        few = {"batch_size": 32}
        rates = self.rates(run(data, tmp_path / "none", "--post-training", warmup_pct=0, **few))
        assert rates[0] == PEAK
        rates = self.rates(run(data, tmp_path / "all", "--post-training", warmup_pct=1, **few))
        assert rates == pytest.approx([PEAK * (step + 1) / len(rates) for step in range(len(rates))])
        monkeypatch.setenv("WARMUP_PCT", "0.5")
        without = [
            flag for flag in arguments(data, tmp_path / "half", "--post-training", **few) if "warmup" not in flag
        ]
        assert examples.main(examples.CHAT, without) == 0
        rates = self.rates(log(tmp_path / "half"))
        assert rates == pytest.approx(self.expected(len(rates), 0.5))


class TestResume:
    @pytest.mark.parametrize("workers", [0, nightly(2)])
    def test_it_goes_on_with_the_batches_and_losses_of_an_unbroken_run(
        self, data: Path, unbroken: Path, tmp_path: Path, workers: int
    ) -> None:
        """As after a kill: one checkpoint of the middle is left, and a log that went further."""
        whole = unbroken
        if workers:
            whole = tmp_path / "whole"
            run(data, whole, "--post-training", workers=workers)
        output = shutil.copytree(whole, tmp_path / "output")
        for folder in (output / "checkpoints").iterdir():
            if folder.name != "step_00000014":
                shutil.rmtree(folder)
        (output / "log.jsonl").write_bytes((output / "log.jsonl").read_bytes()[:-20])
        assert run(data, output, "--post-training", workers=workers) == log(whole), "bit for bit, and no step twice"
        last = sorted(path.name for path in (whole / "checkpoints").iterdir())[-1]
        ends = [torch.load(each / "checkpoints" / last / "rank_00.pt", weights_only=True) for each in (output, whole)]
        assert all(torch.equal(ends[0]["model"][name], ends[1]["model"][name]) for name in ends[0]["model"])

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"learning_rate": 0.5}, "learning_rate was 0.01, now 0.5"),
            ({"batch_size": 4}, "batch_size was 8, now 4"),
            ({"hidden": 16}, "hidden was 32, now 16"),
            ({"shuffle": 3}, "shuffle was 50, now 3"),
        ],
    )
    def test_a_run_that_would_not_go_on_as_it_began_is_refused(
        self,
        data: Path,
        unbroken: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        changes: dict[str, Any],
        words: str,
    ) -> None:
        output = shutil.copytree(unbroken, tmp_path / "output")
        assert examples.main(examples.CHAT, arguments(data, output, "--post-training", **changes)) == 1
        assert words in capsys.readouterr().err
        assert log(output) == log(unbroken), "nothing was touched"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("POST_TRAINING", "perhaps", "POST_TRAINING: say 1 for loss on assistant spans alone"),
        ("WARMUP_PCT", "5", "0.05 for 5 %"),
        ("WARMUP_PCT", "-0.1", "share of the pass"),
        ("WARMUP_PCT", "nan", "share of the pass"),
    ],
)
def test_variables_that_say_nothing_are_refused(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    words: str,
) -> None:
    monkeypatch.setenv(variable, value)
    given = [flag for flag in arguments(data, tmp_path / "output") if "warmup" not in flag]
    assert examples.main(examples.CHAT, given) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_data_without_a_block_are_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert examples.main(examples.CHAT, arguments(data, tmp_path / "output", block_size=100_000)) == 1
    assert "give no block" in capsys.readouterr().err
