"""From URLs to record batches: `plan` is what engines call first, `tasks` what they run.

A plan is made of what `listing` and `files` find, of the columns of `schema` and of the `cuts`. A
task takes the bytes of a `source` (of a remote file, in `ranges`) from one of the `boundaries` on,
goes from frame to frame (`frames`), and does its `work` with them.
"""
