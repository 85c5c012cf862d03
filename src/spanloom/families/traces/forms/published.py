"""Forms of single data sets.

In: a record with their keys. Out: traces.

    GSM8K     question, answer                     steps are the lines of the answer, the answer follows `####`
    LIMO      question, solution, answer           a single step, the solution
    OpenR1    problem, generations                 a trace for each generation, its reasoning in <think> tags
    PRM800K   question.problem, label.steps        the completions that were chosen, with their ratings; where labels
                                                   end at an error, the labelled solution with the ratings it has
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.conversations.reading.markup import without_think_tags
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError
from spanloom.families.traces.forms.form import NoTraceError, TraceForm, texts_at, trace_json, without
from spanloom.records.scalars import is_integer

Traces = list[dict[str, Any] | NoTraceError]

_GSM8K_MARK = "####"
_PRM_ANSWER = "# Answer"


def is_gsm8k(record: Mapping[str, Any]) -> bool:
    """Whether the record has a question, and an answer whose last line begins with `####`."""
    return texts_at(record, "question", "answer") and _gsm8k_parts(record["answer"]) is not None


def _gsm8k_parts(text: str) -> tuple[str, str] | None:
    solution, mark, answer = text.rpartition(_GSM8K_MARK)
    at_begin = not solution or solution.endswith("\n")
    return (solution, answer.strip()) if mark and at_begin and "\n" not in answer.strip() else None


def _gsm8k(record: Mapping[str, Any]) -> Traces:
    if not texts_at(record, "question", "answer") or (parts := _gsm8k_parts(record["answer"])) is None:
        raise NoTraceError("no final line", f"the answer does not end in a line {_GSM8K_MARK} ANSWER")
    steps = [line for line in parts[0].split("\n") if line.strip()]
    return [trace_json(record["question"], steps, parts[1], without(record, "question", "answer"))]


GSM8K = TraceForm(
    title="a question and an answer with a line #### (GSM8K)",
    keys={"prompt": "question", "steps": "answer, its lines", "answer": "answer, behind ####"},
    traces=_gsm8k,
)


def is_limo(record: Mapping[str, Any]) -> bool:
    """Whether the record has three texts: question, solution and answer."""
    return texts_at(record, "question", "solution", "answer")


def _limo(record: Mapping[str, Any]) -> Traces:
    if not is_limo(record):
        raise NoTraceError("a key is missing", "question, solution and answer are texts in this form")
    rest = without(record, "question", "solution", "answer")
    return [trace_json(record["question"], [record["solution"]], record["answer"], rest)]


LIMO = TraceForm(
    title="a question, its solution and the answer (LIMO)",
    keys={"prompt": "question", "steps": "solution", "answer": "answer"},
    traces=_limo,
)


def is_open_r1(record: Mapping[str, Any]) -> bool:
    """Whether the record has a problem and a list of generations."""
    generations = record.get("generations")
    return texts_at(record, "problem") and isinstance(generations, list) and bool(generations)


def _open_r1(record: Mapping[str, Any]) -> Traces:
    if not is_open_r1(record):
        raise NoTraceError("a key is missing", "problem is a text and generations a list in this form")
    generations = record["generations"]
    rest = without(record, "problem", "generations", "messages")
    traces: Traces = []
    for number, generation in enumerate(generations):
        meta = {key: _of_generation(value, number, len(generations)) for key, value in rest.items()}
        try:
            thought, answer = _thought_and_answer(generation, f"generation {number}")
        except NoTraceError as refused:
            traces.append(refused)
        else:
            traces.append(trace_json(record["problem"], [thought], answer, {**meta, "generation": number}))
    return traces


def _of_generation(value: Any, number: int, generations: int) -> Any:
    """The value of a column for one generation, if the column is a list with an entry for each."""
    return value[number] if isinstance(value, list) and len(value) == generations else value


def _thought_and_answer(text: Any, where: str) -> tuple[str, str]:
    if not isinstance(text, str):
        raise NoTraceError("a generation is no text", where)
    try:
        thoughts, answers = without_think_tags((text,), where, Reading(think_tags=True), Dropping())
    except RecordRefusedError as refused:
        raise NoTraceError("tags are unclear", refused.detail) from None
    if not thoughts or not answers:
        raise NoTraceError("no reasoning or no answer", where)
    return thoughts[0], answers[0]


OPEN_R1 = TraceForm(
    title="a problem and generations with <think> tags (OpenR1); each generation is a trace",
    keys={"prompt": "problem", "steps": "generations, in <think> tags", "answer": "generations, behind the tags"},
    traces=_open_r1,
)


def is_prm800k(record: Mapping[str, Any]) -> bool:
    """Whether the record has a question with a problem, and a label with steps."""
    question, label = record.get("question"), record.get("label")
    return (
        isinstance(question, Mapping)
        and isinstance(label, Mapping)
        and isinstance(question.get("problem"), str)
        and isinstance(label.get("steps"), list)
    )


def _prm800k(record: Mapping[str, Any]) -> Traces:
    if not is_prm800k(record):
        raise NoTraceError("a key is missing", "question.problem and label.steps are there in this form")
    question, label = record["question"], record["label"]
    if label.get("finish_reason") == "solution":
        rated = [_chosen(step, number) for number, step in enumerate(label["steps"])]
        fallback = question.get("ground_truth_answer")
    else:
        rated = _pre_generated(question, label)
        fallback = question.get("pre_generated_answer")
    if not rated:
        raise NoTraceError("no steps", "label.steps is empty")
    before, mark, answer = rated[-1][0].partition(_PRM_ANSWER)
    steps = rated if not mark else [*rated[:-1], *([(before.rstrip(), rated[-1][1])] if before.strip() else [])]
    known = [rating for _, rating in rated if rating is not None]
    meta = {
        **without(record, "question", "label"),
        "question": without(question, "problem"),
        "label": label,
        "finish_reason": label.get("finish_reason"),
        "step_ratings": [rating for _, rating in steps],
        "answer_rating": rated[-1][1],
        "min_rating": min(known, default=None),
    }
    return [trace_json(question["problem"], [text for text, _ in steps], answer.strip() or fallback, meta)]


def _chosen(step: Any, number: int) -> tuple[str, int | None]:
    """Text and rating of the chosen completion; one that the labeller wrote has no rating."""
    completions, place = _completions(step), step.get("chosen_completion") if isinstance(step, Mapping) else None
    completion: Any = None
    if isinstance(place, int) and 0 <= place < len(completions):
        completion = completions[place]
    elif isinstance(step, Mapping):
        completion = step.get("human_completion")
    text = completion.get("text") if isinstance(completion, Mapping) else completion
    if not isinstance(text, str):
        raise NoTraceError("a step without a chosen completion", f"step {number}")
    return text, _rating(completion)


def _pre_generated(question: Mapping[str, Any], label: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """The solution that was labelled up to its first error: each step with its rating, None after the error."""
    texts = question.get("pre_generated_steps")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise NoTraceError(f"finish_reason {label.get('finish_reason')}", "there is no solution with an answer")
    rated: list[tuple[str, int | None]] = []
    for number, text in enumerate(texts):
        completions = _completions(label["steps"][number]) if number < len(label["steps"]) else []
        same = [_rating(each) for each in completions if isinstance(each, Mapping) and each.get("text") == text]
        rated.append((text, same[0] if same else None))
    return rated


def _completions(step: Any) -> Sequence[Any]:
    completions = step.get("completions") if isinstance(step, Mapping) else None
    return completions if isinstance(completions, list) else []


def _rating(completion: Any) -> int | None:
    rating = completion.get("rating") if isinstance(completion, Mapping) else None
    return rating if is_integer(rating) else None


PRM800K = TraceForm(
    title="a problem and rated completions of each step (PRM800K)",
    keys={
        "prompt": "question.problem",
        "steps": "label.steps, the chosen completions; after found_error question.pre_generated_steps",
        "answer": "behind # Answer of the last step; without it ground_truth_answer or pre_generated_answer",
        "meta.step_ratings": "a rating for each step; meta.min_rating is the lowest, -1 where a step is wrong",
    },
    traces=_prm800k,
)
