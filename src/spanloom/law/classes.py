"""The classes of findings: what each means, and what to do about it.

In: nothing; constants. Out: `CLASSES` by name, in the order in which reports list them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FindingClass:
    """`meaning`: what is wrong with such a document; `remedy`: what it should be; `cause`: what often made it."""

    meaning: str
    remedy: str
    cause: str


CONTEXT_TRAINED = "context_trained"
TOOL_RESULT_TRAINED = "tool_result_trained"
PROMPT_TRAINED = "prompt_supplied_trained"
COMPLETION_UNTRAINED = "completion_untrained"
HISTORY_UNTRAINED = "history_untrained"
STOP_UNTRAINED = "stop_untrained"
BEHIND_STOP_TRAINED = "trained_behind_stop"
NO_LOSS = "no_loss"
ALL_TRAINED = "all_trained"
TRUNCATED = "truncated"
DOUBLE_BOS = "double_bos"
MISSING_BOS = "missing_bos"
BEGINNING_DIFFERS = "beginning_differs"
SPECIAL_IN_TEXT = "special_in_text"
UNKNOWN_IDS = "unknown_ids"
LABELS_DIFFER = "labels_differ"
HISTORY_REWRITTEN = "history_rewritten"
RETOKENISED = "retokenised"
TEXT_DIFFERS = "text_differs"
DUPLICATE = "duplicate"

CLASSES = {
    CONTEXT_TRAINED: FindingClass(
        meaning="tokens of a system or user message are trained",
        remedy="mask what the model does not write",
        cause="the mask is of the whole sequence, or of all roles, such as with train_on_inputs",
    ),
    TOOL_RESULT_TRAINED: FindingClass(
        meaning="tokens of a tool's result are trained",
        remedy="mask messages of the role tool",
        cause="the mask tells roles apart by the answer's header alone: a result follows without one",
    ),
    PROMPT_TRAINED: FindingClass(
        meaning="tokens that the generation prompt supplies are trained",
        remedy="begin the mask behind the generation prompt, or declare it: --declare prompt_supplied_trained",
        cause="the mask begins at the header: a training template puts its marks around the whole message",
    ),
    COMPLETION_UNTRAINED: FindingClass(
        meaning="tokens that the model samples are not trained",
        remedy="train each turn from the prompt to its stop",
        cause="the mask is shifted, or found by a text that tokens do not keep apart",
    ),
    HISTORY_UNTRAINED: FindingClass(
        meaning="an earlier answer of the document is not trained at all",
        remedy="train each answer, or declare it: --declare history_untrained",
        cause="the last turn alone is trained, such as with completion_only_loss",
    ),
    STOP_UNTRAINED: FindingClass(
        meaning="the stop token of a trained turn is not trained, or not there",
        remedy="end each turn with a declared stop token, and train it: else the model does not stop",
        cause="the mask ends with the text, or padding has the id of the stop token and is masked",
    ),
    BEHIND_STOP_TRAINED: FindingClass(
        meaning="tokens behind the stop token are trained",
        remedy="end the mask with the stop token",
        cause="the marks of the template enclose the line feed behind the stop token, or EOS was appended",
    ),
    NO_LOSS: FindingClass(
        meaning="no token of the document is trained",
        remedy="leave such documents out",
        cause="the response template was not found in the tokens, or the document was cut before the first answer",
    ),
    ALL_TRAINED: FindingClass(
        meaning="all tokens of the document are trained",
        remedy="check that the chat template marks what is generated; without marks masks are all ones",
        cause="the template has no marks for what is generated, or the mask was not turned on",
    ),
    TRUNCATED: FindingClass(
        meaning="the document ends inside a message",
        remedy="leave too long documents out, or raise the maximum length",
        cause="a maximum length cut the document",
    ),
    DOUBLE_BOS: FindingClass(
        meaning="the document begins with BOS twice",
        remedy="encode rendered text without special tokens",
        cause="the rendered text, which has BOS, was encoded with special tokens",
    ),
    MISSING_BOS: FindingClass(
        meaning="the template writes BOS, the document does not begin with it",
        remedy="keep what the template writes",
        cause="BOS was removed, or the document was cut from the left",
    ),
    BEGINNING_DIFFERS: FindingClass(
        meaning="the document does not begin as the template begins each: a control token or a system text is missing",
        remedy="render with the model's own template, and keep its beginning",
        cause="another template, a system text that was left out, or a document that was cut from the left",
    ),
    SPECIAL_IN_TEXT: FindingClass(
        meaning="a control token is where the template writes none: a text holds it",
        remedy="encode texts without control tokens, or leave such conversations out",
        cause="texts were encoded together with the template, so that control tokens in them count",
    ),
    UNKNOWN_IDS: FindingClass(
        meaning="the document has ids that the tokenizer lacks",
        remedy="give the tokenizer of the dataset",
        cause="tokens were added to the tokenizer of the dataset",
    ),
    LABELS_DIFFER: FindingClass(
        meaning="labels are not the tokens at their places",
        remedy="do not shift labels: trainers do. Labels ahead of their tokens: --aligned labels",
        cause="labels were shifted where the trainer shifts them again",
    ),
    HISTORY_REWRITTEN: FindingClass(
        meaning="a trained answer, or what is before it, is not as the model meets it: the template rewrites history",
        remedy="make a document of each run, as `spanloom build --model` does",
        cause="the whole conversation was rendered once, or reasoning was put into the content",
    ),
    RETOKENISED: FindingClass(
        meaning="the text is right, its ids are not those of the tokenizer",
        remedy="encode with the model's tokenizer",
        cause="messages were encoded one by one and joined",
    ),
    TEXT_DIFFERS: FindingClass(
        meaning="the text is not the one that the template writes for these messages",
        remedy="render with the model's own template and the same options",
        cause="another template, other variables or a default system text",
    ),
    DUPLICATE: FindingClass(
        meaning="an earlier document has the same tokens",
        remedy="leave duplicates out before the split",
        cause="the source has the conversation twice, or two sources were joined",
    ),
}

NAMES = tuple(CLASSES)
