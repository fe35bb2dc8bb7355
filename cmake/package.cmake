# What `make install` ships beside the programs, for train programs outside this tree (docs/write-a-recipe.md): headers
# below include/lockstep, the static libraries of lockstep-train, and the CMake package whose target lockstep::train brings
# all of it. Relocatable: only the place of the torch package is recorded. Component "package".
if(NOT LOCKSTEP_TORCH_FOUND)
  return()
endif()
include(CMakePackageConfigHelpers)

# In the order of the link line: each uses only what comes behind it.
set(lockstep_package_libraries cli_train recipes media engine models comm_torch comm cache data track place hardware record cuda plan foreign base)
list(TRANSFORM lockstep_package_libraries PREPEND lockstep_ OUTPUT_VARIABLE targets)
install(TARGETS ${targets} ARCHIVE DESTINATION lib COMPONENT package)

# Headers of what a recipe may use, by the names our own files use. Left out: those that only show libraries of others.
foreach(folder base foreign record cache comm data track plan engine models media recipes)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/${folder} DESTINATION include/lockstep COMPONENT package
    FILES_MATCHING PATTERN *.h PATTERN cairo.h EXCLUDE PATTERN ffmpeg.h EXCLUDE)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/src/cli/train/program.h DESTINATION include/lockstep/cli/train COMPONENT package)

file(STRINGS ${lockstep_torch_dir}/version.py LOCKSTEP_TORCH_VERSION REGEX "^__version__")
string(REGEX REPLACE "^[^']*'([^'+]*).*" "\\1" LOCKSTEP_TORCH_VERSION "${LOCKSTEP_TORCH_VERSION}")
get_target_property(definitions lockstep_decoders INTERFACE_COMPILE_DEFINITIONS)
set(LOCKSTEP_READS_VIDEO OFF)
if(definitions MATCHES LOCKSTEP_FFMPEG)
  set(LOCKSTEP_READS_VIDEO ON)
endif()
file(REAL_PATH ${lockstep_torch_dir} LOCKSTEP_TORCH_RECORDED)

set(out ${CMAKE_BINARY_DIR}/package)
configure_file(${CMAKE_SOURCE_DIR}/cmake/package/lockstepConfig.cmake.in ${out}/lockstepConfig.cmake @ONLY)
write_basic_package_version_file(${out}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${out}/lockstepConfig.cmake ${out}/lockstepConfigVersion.cmake ${CMAKE_SOURCE_DIR}/cmake/torch_target.cmake
  ${CMAKE_SOURCE_DIR}/cmake/cuda.cmake DESTINATION lib/cmake/lockstep COMPONENT package)
