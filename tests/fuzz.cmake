# Every tests/fuzz/<name>_fuzz.cc is a libFuzzer target; tests/fuzz/corpus/<name>/ holds inputs worth keeping. A test run
# tries all of the corpus, then new inputs for a few seconds. To search longer:
#   build/asan/tests/<name>_fuzz -max_total_time=3600 tests/fuzz/corpus/<name>
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*_fuzz.cc)
foreach(source ${fuzz_sources})
  get_filename_component(target ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name ${target})
  add_executable(${target} ${source})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_precompile_headers(${target} REUSE_FROM lockstep_pch)
  lockstep_use(${target} watch_web watch launch logs diagnose hang lint tune submit record place hardware data track foreign base)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  add_dependencies(test_programs ${target})
  set(found ${CMAKE_BINARY_DIR}/fuzz/${name})
  file(MAKE_DIRECTORY ${found})
  # New inputs go to the first folder: the tree's corpus stays as it is.
  add_test(NAME fuzz.${name} COMMAND ${target} -runs=200000 -max_total_time=5 -timeout=10 -rss_limit_mb=1024
    -print_final_stats=1 -verbosity=0 -artifact_prefix=${found}- ${found} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 180 LABELS fuzz ${test_properties})
endforeach()
