"""From staged files to a data set: `job` is what engines call, `plan` what a commit changes.

`staging` and `file_staging` keep what is not committed yet, `ownership` says whose it is, `publish`
and `replaced` carry out what was decided.
"""
