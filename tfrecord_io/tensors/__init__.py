"""Tables as tensors, for training: NumPy arrays in batches, and TensorFlow's data sets.

`rows` says which rows come in which order, `columns` what their tensors are. `tfrecord_io.torch`
and `tfrecord_io.tf` are the names for users.
"""
