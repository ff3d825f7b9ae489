#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a copy of a GGUF file whose tensors are all f32, with the same metadata (Python packages gguf and numpy).

    python tests/published/dequantise_gguf.py IN.gguf OUT.gguf

Programs that compute with such a file differ in their arithmetic alone, not in how they read or multiply quantised
weights: see greedy_peer.py.
"""

import pathlib
import sys

import gguf


def copy_metadata(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue  # the writer's own
        kind = field.types[0]
        sub_kind = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = int(gguf.LlamaFileType.ALL_F32) if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=sub_kind)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    source, target = map(pathlib.Path, sys.argv[1:])
    if target.exists():
        sys.exit(f"{target}: it exists already")
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(target, architecture, use_temp_file=True)
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
