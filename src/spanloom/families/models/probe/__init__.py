"""What a model's template does with conversations, found by rendering.

conversations  the forty conversations of `sample`, or those of a file
form           the form in which a template takes messages; the template variables for thinking
grammar        the tokens of the frames that the template writes, found by rendering
retokenised    documents whose ids differ from the tokenizer's ids of their text
frames         the frames, and which findings tokens of this template cannot show
hazards        what a template does that changes prompts: date, default system text, double BOS
history        a variable that keeps earlier thoughts, and what it saves
result         which conversations are proven or refused, and what was found; as a table and as JSON
advice         the options with which more conversations are proven
page           the result as a page, with the coloured tokens of each run
"""
