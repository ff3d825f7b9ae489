# SPDX-License-Identifier: Apache-2.0
"""Builds two of the samples with the package, as a project of somebody else, and lets their teams answer."""

import io
import os

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout

PROGRAMS = ["hello_team", "hello_team_c"]


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join("..", "..", "..", "samples"))
        cmake.build(target=PROGRAMS)

    def test(self):
        if not can_run(self):
            return
        for program in PROGRAMS:
            said = io.StringIO()
            self.run(os.path.join(self.cpp.build.bindir, program), said, env="conanrun")
            if "The answer is 61" not in said.getvalue():
                raise ConanException(f"{program}: expected 'The answer is 61', found: {said.getvalue()}")
            self.output.info(f"{program} answers")
