# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack (./dev package): baton, libbaton-dev and baton-models (docs/packages.md). What a package
# depends on is what dpkg-shlibdeps finds in its programs.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME baton)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Baton authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev models)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME baton)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libcurl4 (>= 7.85)")  # its options have no versions that could be found
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # also the trigger that runs ldconfig
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "baton-models (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS python3)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The programs baton and baton-lab, the shared library libbaton, and the roles and workflows that ship with them.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libbaton-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "baton (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, files for CMake and for pkg-config, and samples.")

set(CPACK_DEBIAN_MODELS_PACKAGE_NAME baton-models)
set(CPACK_DEBIAN_MODELS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MODELS_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_MODELS_DESCRIPTION "nano, a language model of 4 million parameters for word problems.")

include(CPack)
