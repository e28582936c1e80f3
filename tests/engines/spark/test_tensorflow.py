"""From Spark to training: the guide's examples, and the same loss from every writer."""

import re
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

import tfrecord_io as tfr

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "tensorflow.md"


def test_examples_of_the_guide(tf, classic, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 8
    names = {"spark": classic, "folder": str(tmp_path)}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)


def losses(tf, path):
    """What a small model loses that learns from columns x0, x1 and y."""
    tf.keras.utils.set_random_seed(1)
    inputs = {name: tf.keras.Input((), name=name) for name in ("x0", "x1")}
    columns = [tf.keras.layers.Reshape((1,))(inputs[name]) for name in inputs]
    out = tf.keras.layers.Dense(1)(tf.keras.layers.Concatenate()(columns))
    model = tf.keras.Model(inputs, out)
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    dataset = tfr.tf.dataset(path, batch_size=16, label="y")
    return model.fit(dataset, epochs=3, verbose=0, shuffle=False).history["loss"]


def test_a_model_learns_the_same_from_all_writers(tf, classic, tmp_path):
    random = np.random.default_rng(0)
    x0, x1 = random.random((2, 200)).astype(np.float32)
    frame = pd.DataFrame({"x0": x0, "x1": x1, "y": 2 * x0 - x1})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    tfr.write_table(table, tmp_path / "local")
    tfr.to_tfrecord(dd.from_pandas(frame, npartitions=1), str(tmp_path / "dask"))
    of_spark = classic.createDataFrame(frame).coalesce(1)
    of_spark.write.format("tfrecord").save(str(tmp_path / "spark"))
    # TensorFlow's own writer and parser.
    path = str(tmp_path / "theirs.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for row in table.to_pylist():
            features = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                for name, value in row.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    found = [losses(tf, str(tmp_path / name)) for name in ("local", "dask", "spark")]
    found.append(losses(tf, path))
    assert found[0][-1] < found[0][0] / 2
    assert found == [found[0]] * 4
