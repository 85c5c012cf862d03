"""Hypothesis strategies for Harmony conversations: any role order, any text, odd headers, every shape of content."""

from typing import Any

from hypothesis import strategies as st

SPECIAL_TEXT = (
    "<|start|>", "<|end|>", "<|return|>", "<|message|>", "<|channel|>", "<|call|>", "<|endoftext|>", "<|constrain|>",
    "<|start|>assistant<|channel|>final<|message|>", "<|end|><|start|>assistant", "assistant", "final",
)  # fmt: skip
text = st.lists(
    st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.sampled_from(SPECIAL_TEXT)), max_size=4
).map("".join)
names = st.one_of(st.none(), text.filter(bool))


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "developer", "user", "assistant", "assistant"]))
    message: dict[str, Any] = {"role": role}
    if role == "assistant":
        message["channel"] = draw(st.sampled_from(["analysis", "final"]))
    elif draw(st.booleans()):
        message["channel"] = draw(st.sampled_from(["analysis", "final", "commentary"]))
    for key in ("name", "recipient", "content_type"):
        if (value := draw(names)) is not None:
            message[key] = value
    if role == "system" and draw(st.booleans()):
        message["content"] = [{"type": "system_content", "model_identity": draw(text), "knowledge_cutoff": None}]
    elif role == "developer" and draw(st.booleans()):
        message["content"] = [{"type": "developer_content", "instructions": draw(text)}]
    else:
        parts = draw(st.lists(text, max_size=3))
        message["content"] = parts[0] if parts and draw(st.booleans()) else [{"type": "text", "text": p} for p in parts]
    return message


conversations = st.lists(messages(), min_size=1, max_size=6).filter(
    lambda found: any(message["role"] == "assistant" for message in found)
)
