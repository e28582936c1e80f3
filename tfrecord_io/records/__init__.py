"""Single files of records, by the names and arguments of tf.io; and their index files for DALI.

`tfrecord_io.io`, `tfrecord_io.python_io` and `tfrecord_io.compat` name them.
"""
