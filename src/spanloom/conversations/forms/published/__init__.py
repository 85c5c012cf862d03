"""Forms of one vendor or one data set.

harmony       messages of openai-harmony's own JSON, with system fields, channels and recipients
harmony_text  conversations that are already rendered as Harmony text
responses     items of OpenAI's Responses
gemini        contents and parts of Gemini
xlam          questions whose answers are calls
glaive        transcripts of Glaive's function calling
trajectories  runs of SWE-agent and OpenHands
pairs         lists of pairs, and texts that alternate
named         columns with the names of one known data set
"""
