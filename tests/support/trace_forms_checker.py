"""What traces must come of records that others published, worked out apart from the code that reads them.

In: records of GSM8K, PRM800K and of chat data with reasoning, as JSON. Out: prompt, steps, answer, ratings. Written
from the descriptions of the data sets; it imports nothing of the package.
"""

import re
from typing import Any

Parts = tuple[str, list[str], str]


def gsm8k(record: dict[str, Any]) -> Parts:
    """The lines before the one that begins with `####`, and what is in that one."""
    lines = record["answer"].split("\n")
    marks = [number for number, line in enumerate(lines) if line.startswith("####")]
    return record["question"], [line for line in lines[: marks[-1]] if line.strip()], lines[marks[-1]][4:].strip()


def prm800k(record: dict[str, Any]) -> tuple[Parts, list[int | None]]:
    """Steps and ratings: of the chosen path, or of the solution that was rated up to its first error."""
    label, question = record["label"], record["question"]
    ratings: list[int | None]
    if label["finish_reason"] == "solution":
        taken = [step["completions"][step["chosen_completion"]] for step in label["steps"]]
        texts, ratings = [each["text"] for each in taken], [each["rating"] for each in taken]
    else:
        texts, ratings = list(question["pre_generated_steps"]), []
        for number, text in enumerate(texts):
            rated = label["steps"][number]["completions"] if number < len(label["steps"]) else []
            ratings.append(next((each["rating"] for each in rated if each["text"] == text), None))
    final = re.fullmatch(r"(.*?)\s*# Answer\s+(.*)", texts[-1], re.DOTALL)
    if final is None:
        return (question["problem"], texts, question["ground_truth_answer"]), ratings
    if final[1]:
        return (question["problem"], [*texts[:-1], final[1]], final[2].strip()), ratings
    return (question["problem"], texts[:-1], final[2].strip()), ratings[:-1]


_TAGS = re.compile(
    r"\s*(?:<think>|<\|begin_of_thought\|>)(?P<thought>.*?)(?:</think>|<\|end_of_thought\|>)\s*"
    r"(?:<\|begin_of_solution\|>)?(?P<answer>.*?)(?:<\|end_of_solution\|>)?\s*",
    re.DOTALL,
)


def reasoned(message: dict[str, Any]) -> tuple[str, str]:
    """Reasoning and answer of an assistant's message: apart by key, or in tags."""
    text = message.get("content", message.get("value"))
    if "reasoning_content" in message:
        return message["reasoning_content"], text
    match = _TAGS.fullmatch(text)
    assert match is not None, text
    return match["thought"].strip(), match["answer"].strip()


def chat(record: dict[str, Any]) -> Parts:
    """A user's message, the reasoning and the answer of the one that follows."""
    messages = record.get("messages") or record["conversations"]
    first, second = messages
    thought, answer = reasoned(second)
    return first.get("content", first.get("value")), [thought], answer
