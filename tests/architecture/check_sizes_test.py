# SPDX-License-Identifier: Apache-2.0
"""What cmake/check_sizes.py counts as a key of `relay:`."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))

import check_sizes  # noqa: E402

REFERENCE = """
### `relay`

| key | value | default | meaning |
| --- | --- | --- | --- |
| `method` | one of 'auto', 'full' | auto | The method, or `tolerance`. |
| `layers` | a map (layers) | those of the profile | The layers. |
| `lab` | a map (lab) |  | For the laboratory. |

### `layers`

| key | value | default | meaning |
| --- | --- | --- | --- |
| `start` | an integer of at least 0 |  | The first. |
| `end` | an integer of at least 1 |  | The last. |

### `lab`

| key | value | default | meaning |
| --- | --- | --- | --- |
| `epic_tokens` | an integer of at least 0 |  | Some. |

### An agent

| key | value | default | meaning |
| --- | --- | --- | --- |
| `model` | a string |  | The model. |
"""


class Keys(unittest.TestCase):
    def test_nested_keys_count_and_the_laboratory_does_not(self):
        keys = ["relay.method", "relay.layers", "relay.layers.start", "relay.layers.end"]
        self.assertEqual(check_sizes.relay_keys(REFERENCE), keys)

    def test_the_page_has_the_section(self):
        page = pathlib.Path(check_sizes.__file__).resolve().parents[1] / "docs/yaml.md"
        self.assertIn("relay.method", check_sizes.relay_keys(page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    unittest.main()
