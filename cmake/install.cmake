# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` gives, in the components runtime, dev and models (docs/packages.md). No installed file knows
# where it is: a prefix may be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
option(BATON_INSTALL "Install rules" ${PROJECT_IS_TOP_LEVEL})
if(NOT BATON_INSTALL)
  return()
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
set(share ${CMAKE_INSTALL_DATADIR}/baton)
set(doc ${CMAKE_INSTALL_DATADIR}/doc/baton)
set(pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH up /${pkgconfig} /)
string(REGEX REPLACE "/$" "" up ${up})

# baton_pkg_config(name): installs cmake/NAME.pc.in.
function(baton_pkg_config name)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig} COMPONENT dev)
endfunction()

install(TARGETS baton baton_lab_program RUNTIME COMPONENT runtime)
if(TARGET baton_shared)
  install(TARGETS baton_shared EXPORT batonShared LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
  install(EXPORT batonShared NAMESPACE baton:: FILE batonSharedTargets.cmake DESTINATION ${package} COMPONENT dev)
  baton_pkg_config(baton)
endif()
# Not where its objects were compiled for libraries that are linked into the shared library: it would need the same ones.
if(NOT BATON_BUNDLE)
  install(TARGETS baton_library EXPORT baton ARCHIVE COMPONENT dev)
  install(EXPORT baton NAMESPACE baton:: FILE batonTargets.cmake DESTINATION ${package} COMPONENT dev)
  install(FILES cmake/baton_package_share.cpp.in DESTINATION ${package} COMPONENT dev)
  if(NOT BATON_WITH_CUDA)  # the CUDA toolkit has no file for pkg-config that could be named
    set(requires "fmt, yaml-cpp, libhwy, libpcre2-8, libutf8proc, libxxhash")
    if(SECCOMP_FOUND)
      string(APPEND requires ", libseccomp")
    endif()
    if(CURL_FOUND)
      string(APPEND requires ", libcurl")
    endif()
    baton_pkg_config(baton-static)
  endif()
endif()

# All that is built for it, and nothing else: ./dev build --no-tests.
add_custom_target(baton_installed)
add_dependencies(baton_installed baton baton_lab_program baton_library)
if(TARGET baton_shared)
  add_dependencies(baton_installed baton_shared)
endif()

configure_package_config_file(cmake/batonConfig.cmake.in ${PROJECT_BINARY_DIR}/batonConfig.cmake INSTALL_DESTINATION ${package} PATH_VARS share)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/batonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/batonConfig.cmake ${PROJECT_BINARY_DIR}/batonConfigVersion.cmake
  DESTINATION ${package} COMPONENT dev)
install(DIRECTORY sdk/include/baton engine/base/baton DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h")
# The samples are a project of their own there.
install(FILES samples/CMakeLists.txt DESTINATION ${doc}/samples COMPONENT dev)
set(samples bakery chat desktop event_loop hello_team hello_team_c hello_team_python own_tool own_tool_c own_tool_python)
list(TRANSFORM samples PREPEND samples/)
install(DIRECTORY ${samples} DESTINATION ${doc}/samples COMPONENT dev PATTERN __pycache__ EXCLUDE)
# Where programs and the library look, from their own place: ../share/baton (sdk/src/model_path.h).
install(DIRECTORY agents/roles/ DESTINATION ${share}/roles COMPONENT runtime FILES_MATCHING PATTERN "*.yaml" PATTERN "*.md")
install(DIRECTORY workflows/library/ DESTINATION ${share}/workflows COMPONENT runtime
  FILES_MATCHING PATTERN "*.yaml" PATTERN "*.md")
install(DIRECTORY engine/learning/levels DESTINATION ${share} COMPONENT runtime FILES_MATCHING PATTERN "*.json")
install(DIRECTORY samples/models/nano DESTINATION ${share}/models COMPONENT models
  FILES_MATCHING PATTERN "*.json" PATTERN "*.safetensors" PATTERN "*.jinja" PATTERN "LICENSE" PATTERN "recipe" EXCLUDE)
# The licences go wherever the programs and the library go: share/doc/baton.
install(FILES LICENSE NOTICE THIRD_PARTY_NOTICES.md DESTINATION ${doc} COMPONENT runtime)
install(DIRECTORY licenses DESTINATION ${doc} COMPONENT runtime FILES_MATCHING PATTERN "*.txt")
