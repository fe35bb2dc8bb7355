# The version is that of project() in CMakeLists.txt; base/version.h hands it out.
# lockstep_commit(program): links the git commit into a program. A small commit.cc is looked after at every build and
# written only when the commit changed, so that a commit recompiles one file and relinks the programs, not the tests.
# This file is also the script that writes it.
#
# Without git the commit is that of cmake/commit.txt, which `git archive` fills in; else it is empty: unknown.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(commit "")
  set(date "")
  file(READ ${SOURCE}/cmake/commit.txt archived)
  if(archived MATCHES "^([0-9a-f]+) ([0-9-]+)")
    set(commit ${CMAKE_MATCH_1})
    set(date ${CMAKE_MATCH_2})
  elseif(EXISTS ${SOURCE}/.git)  # ours: a folder above may be a repository of somebody else
    # safe.directory: the tree of one user is often built by root in a container.
    set(git git -C ${SOURCE} -c safe.directory=* --no-optional-locks)
    execute_process(COMMAND ${git} log -1 --format=%h\ %cs OUTPUT_VARIABLE head RESULT_VARIABLE code ERROR_QUIET)
    if(code EQUAL 0 AND head MATCHES "^([0-9a-f]+) ([0-9-]+)")
      set(commit ${CMAKE_MATCH_1})
      set(date ${CMAKE_MATCH_2})
      execute_process(COMMAND ${git} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
      if(changes)
        string(APPEND commit -dirty)
      endif()
    endif()
  endif()
  file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT "namespace lockstep {
extern const char kBuildCommit[];
extern const char kBuildCommitDate[];
const char kBuildCommit[] = \"@commit@\";
const char kBuildCommitDate[] = \"@date@\";
}  // namespace lockstep
")
  return()
endif()

set(LOCKSTEP_COMMIT_SOURCE ${CMAKE_BINARY_DIR}/embedded/commit.cc)
add_custom_target(lockstep_commit BYPRODUCTS ${LOCKSTEP_COMMIT_SOURCE}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${LOCKSTEP_COMMIT_SOURCE} -P ${CMAKE_CURRENT_LIST_FILE}
  VERBATIM)
function(lockstep_commit program)
  target_sources(${program} PRIVATE ${LOCKSTEP_COMMIT_SOURCE})
  set_source_files_properties(${LOCKSTEP_COMMIT_SOURCE} TARGET_DIRECTORY ${program} PROPERTIES
    GENERATED TRUE SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(${program} lockstep_commit)
endfunction()
