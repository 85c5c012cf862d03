"""Output for users: progress while something runs, results, and views of what was built. Independent of the family.

progress      live bars on a terminal, otherwise plain lines, nothing when silent
summary       a dataset and its validation as a short table
plan_summary  a plan as a few lines
stats         counts by group as table, CSV, JSON
terminal      documents on a terminal
pages/        pages for a browser, with plots; their templates are in `templates/`
card          the dataset card: `README.md`
croissant     Croissant metadata
views         report and card beside a dataset
export_views  card and Croissant metadata beside an export
"""
