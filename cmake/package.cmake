# `cmake --install`, and find_package(tandem) for its users: tandem::tandem compiles, tandem::runtime only runs.
# Public headers go to include/tandem, the room headers that they name to include/tandem/rooms/<room>.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)

list(TRANSFORM TANDEM_ROOMS PREPEND tandem_ OUTPUT_VARIABLE room_targets)
install(TARGETS tandem ${room_targets} EXPORT tandem_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tandem_targets NAMESPACE tandem:: FILE tandem-targets.cmake DESTINATION ${package_dir})
if(TARGET tandem_command)
  install(TARGETS tandem_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
foreach(room IN LISTS TANDEM_ROOMS)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tandem/rooms
          FILES_MATCHING PATTERN "*.h" PATTERN "llvm_headers.h" EXCLUDE)
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tandem-config.cmake.in
  ${PROJECT_BINARY_DIR}/tandem-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandem-config.cmake ${PROJECT_BINARY_DIR}/tandem-config-version.cmake
        DESTINATION ${package_dir})
