# SPDX-License-Identifier: Apache-2.0
# Not tried yet: no machine with vcpkg's sources was at hand. An overlay port, for the tree that it lies in:
#   vcpkg install baton --overlay-ports=packaging/vcpkg/ports
# libseccomp, for which vcpkg has no port, is the system's (Debian: libseccomp-dev).
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)
vcpkg_find_acquire_program(PKGCONFIG)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DBATON_TESTS=OFF -DBATON_SHARED=OFF "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/baton)
vcpkg_fixup_pkgconfig()

# The port is for the library: the program would look for its files elsewhere.
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/bin" "${CURRENT_PACKAGES_DIR}/debug/bin"
  "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/NOTICE" "${SOURCE_PATH}/THIRD_PARTY_NOTICES.md")
