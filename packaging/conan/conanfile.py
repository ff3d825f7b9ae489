# SPDX-License-Identifier: Apache-2.0
"""Baton as a package for Conan 2 (docs/packages.md):

    conan create packaging/conan -s compiler.cppstd=20

What Baton is built with comes from the distribution's packages, which this recipe checks for and, if Conan may install
packages, installs. It has not been tried with the packages of ConanCenter.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm
from conan.tools.system.package_manager import Apt

SOURCES = ["CMakeLists.txt", "agents/*", "cmake/*", "engine/*", "licenses/*", "samples/*", "sdk/*", "workflows/*",
           "LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"]
SYSTEM = ["libfmt-dev", "libyaml-cpp-dev", "libhwy-dev", "libpcre2-dev", "libutf8proc-dev", "libxxhash-dev",
          "libseccomp-dev", "libcurl4-openssl-dev", "libssl-dev", "libboost-dev", "libcli11-dev", "libeigen3-dev",
          "nlohmann-json3-dev", "pkg-config", "python3"]


class Baton(ConanFile):
    name = "baton"
    package_type = "library"
    license = "Apache-2.0"
    description = "Teams of language model agents, described in YAML, run in this process"
    topics = ("llm", "agents", "inference")
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root, "CMakeLists.txt"))
        self.version = re.search(r"project\(baton VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, src=self._root, dst=self.export_sources_folder, excludes="*__pycache__*")

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"Baton is for Linux, found {self.settings.os}")

    def system_requirements(self):
        Apt(self).install(SYSTEM, check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["BATON_TESTS"] = False
        toolchain.cache_variables["BATON_SHARED"] = bool(self.options.shared)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target=["baton", "baton_library", *(["baton_shared"] if self.options.shared else [])])

    def package(self):
        CMake(self).install()
        if self.options.shared:  # the package has one of the two, as `baton::baton`
            rm(self, "libbaton.a", os.path.join(self.package_folder, "lib"))
            rm(self, "batonTargets*.cmake", os.path.join(self.package_folder, "lib", "cmake", "baton"))
            rm(self, "baton-static.pc", os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        # find_package(baton) reads the package's own files, which name the system's libraries.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "baton")]
        self.cpp_info.libs = ["baton"]
        if not self.options.shared:
            self.cpp_info.system_libs = ["fmt", "yaml-cpp", "hwy", "pcre2-8", "utf8proc", "xxhash", "seccomp", "curl",
                                         "pthread", "dl", "m"]
