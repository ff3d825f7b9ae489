# SPDX-License-Identifier: Apache-2.0
# What a user of the SDK links, and what `cmake --install` gives: baton::baton, one static library of all layers and the
# public headers. The same name works with find_package(baton CONFIG) and with add_subdirectory.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
option(BATON_INSTALL "Install rules" ${PROJECT_IS_TOP_LEVEL})

# baton_dependencies(target): adds the project's own layers below a target to `layers` and libraries of others that
# have something to link to `others`, in the caller's scope.
function(baton_dependencies target)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  foreach(library IN LISTS libraries)
    string(REGEX REPLACE "^\\$<(BUILD_INTERFACE|LINK_ONLY):(.*)>$" "\\2" library "${library}")
    if(library MATCHES "^(baton_flags|nlohmann_json::nlohmann_json)$" OR library IN_LIST layers OR library IN_LIST others)
      continue()
    elseif(library MATCHES "^baton_")
      list(APPEND layers ${library})
      baton_dependencies(${library})
    elseif(TARGET ${library})
      list(APPEND others ${library})
    endif()
  endforeach()
  set(layers ${layers} PARENT_SCOPE)
  set(others ${others} PARENT_SCOPE)
endfunction()

set(layers baton_sdk)
set(others "")
baton_dependencies(baton_sdk)

set(objects ${layers})
list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
add_library(baton_library STATIC ${objects})
add_library(baton::baton ALIAS baton_library)
set_target_properties(baton_library PROPERTIES OUTPUT_NAME baton EXPORT_NAME baton LINKER_LANGUAGE CXX)
target_compile_features(baton_library INTERFACE cxx_std_20)
target_include_directories(baton_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/sdk/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/engine/base> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(baton_library PRIVATE ${others} PUBLIC Threads::Threads)
# A project that adds this folder links these from its own scope.
foreach(library IN LISTS others ITEMS Threads::Threads)
  get_target_property(imported ${library} IMPORTED)
  get_target_property(global ${library} IMPORTED_GLOBAL)
  if(imported AND NOT global)
    set_target_properties(${library} PROPERTIES IMPORTED_GLOBAL TRUE)
  endif()
endforeach()

if(NOT BATON_INSTALL)
  return()
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
set(share ${CMAKE_INSTALL_DATADIR}/baton)
install(TARGETS baton RUNTIME)
install(TARGETS baton_library EXPORT baton ARCHIVE)
install(EXPORT baton NAMESPACE baton:: FILE batonTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/batonConfig.cmake.in ${PROJECT_BINARY_DIR}/batonConfig.cmake INSTALL_DESTINATION ${package} PATH_VARS share)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/batonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/batonConfig.cmake ${PROJECT_BINARY_DIR}/batonConfigVersion.cmake
  cmake/baton_package_share.cpp.in DESTINATION ${package})
install(DIRECTORY sdk/include/baton engine/base/baton DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# Where the runner looks, from its own place: ../share/baton.
install(DIRECTORY agents/roles/ DESTINATION ${share}/roles FILES_MATCHING PATTERN "*.yaml" PATTERN "*.md")
install(DIRECTORY workflows/library/ DESTINATION ${share}/workflows FILES_MATCHING PATTERN "*.yaml" PATTERN "*.md")
install(DIRECTORY samples/models/nano DESTINATION ${share}/models
  FILES_MATCHING PATTERN "*.json" PATTERN "*.safetensors" PATTERN "*.jinja" PATTERN "LICENSE" PATTERN "recipe" EXCLUDE)
# The licences go wherever the programs and the library go: share/doc/baton.
install(FILES LICENSE NOTICE THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/baton)
install(DIRECTORY licenses DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/baton FILES_MATCHING PATTERN "*.txt")
