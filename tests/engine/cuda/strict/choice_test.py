#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BATON_CUDA=AUTO: a build has kernels if, and only if, there are a device and a toolkit; no kernel is compiled here.

    python3 tests/engine/cuda/strict/choice_test.py CMAKE PROBE

PROBE prints the devices of the strict runtime, in the place of nvidia-smi; baton_test_strict then opens such a device
with `--device auto`. Without a toolkit in this machine the first case is left out.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
CMAKE, PROBE = (str(pathlib.Path(one)) for one in sys.argv[1:3])


class Choice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def configure(self, *options: str) -> tuple[str, str]:
        """What a configuration says about the GPU, and its rules of compilation for what ./dev demo builds."""
        build = pathlib.Path(self.folder.name)
        done = subprocess.run([CMAKE, "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                               "-DBATON_TESTS=OFF", *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "baton"], capture_output=True, text=True)
        self.assertEqual(commands.returncode, 0, commands.stderr)
        return (build / "cuda.txt").read_text().strip(), commands.stdout

    def test_1_no_device(self):
        for probe in ("false", "true", "no-such-program"):
            said, commands = self.configure(f"-DBATON_CUDA_PROBE={probe}")
            self.assertEqual(said, "no NVIDIA GPU was found; this build computes on the CPU")
            self.assertNotIn(".cu", commands)
            self.assertIn("engine/cuda/host/unavailable.cpp", commands)

    def test_2_device_without_toolkit(self):
        said, commands = self.configure(f"-DBATON_CUDA_PROBE={PROBE}", "-DBATON_NVCC=")
        self.assertIn("a GPU was found (compute capability 8.6), but no nvcc", said)
        self.assertIn("install the CUDA toolkit", said)
        self.assertNotIn(".cu", commands)

    def test_3_device_that_is_too_old(self):
        said, commands = self.configure("-DBATON_CUDA_PROBE=echo;7.5")
        self.assertIn("too old", said)
        self.assertNotIn(".cu", commands)

    def test_4_device_and_toolkit(self):
        found = subprocess.run("command -v nvcc || ls /usr/local/cuda/bin/nvcc", shell=True, capture_output=True, text=True)
        if found.returncode != 0:
            print("SKIPPED: there is no CUDA toolkit")
            return
        said, commands = self.configure(f"-DBATON_CUDA_PROBE={PROBE}", "-UBATON_NVCC")
        self.assertIn("a GPU was found (compute capability 8.6); its kernels are compiled with", said)
        self.assertNotIn("unavailable.cpp", commands)
        kernels = [line for line in commands.splitlines() if line.endswith(".cu.o") or ".cu -o" in line]
        self.assertEqual(len(kernels), len(list((ROOT / "engine/cuda").rglob("*.cu"))), commands[-3000:])
        for line in kernels:
            self.assertIn("sm_86", line)
            self.assertNotIn("sm_90", line)
        # Whoever says ON or OFF is obeyed.
        _, commands = self.configure("-DBATON_CUDA=OFF", f"-DBATON_CUDA_PROBE={PROBE}")
        self.assertNotIn(".cu", commands)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
