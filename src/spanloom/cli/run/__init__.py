"""What commands do, each function in the module that has the place of its options in `spanloom.cli`.

    convert     convert
    dataset/    validate, inspect, stats, manifest show, export, plan, blend
    models/     audit, teacher score, teacher validate
    toolcalls/  toolcalls …
    traces/     traces …

A module is imported when its command runs, and imports at its top what the command needs.
"""
