"""From record batches to staged files: `plan` is what engines call first, `attempt` what they run.

`feed` gives rows to tasks on threads, `part_writer` writes one file, `foreign_files` asks whether
files of others fit what is added to them.
"""
