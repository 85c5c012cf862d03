"""What people see: while something runs, when it is done, and when they look at what was built. It knows no family.

progress      live bars on a terminal, plain lines elsewhere, nothing when silent
summary       a dataset and its validation as a short table
plan_summary  a plan as one
stats         counts by group as table, CSV, JSON
terminal      documents on a terminal
pages/        pages for a browser, and the plots in them; `templates/` beside it
card          the dataset card: `README.md`
croissant     Croissant metadata
views         these files beside a dataset
export_views  the same beside an export
"""
