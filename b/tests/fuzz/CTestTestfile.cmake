# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/fuzz
# Build directory: /tmp/me/merge/b/tests/fuzz
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[fuzz_chat]=] "/tmp/me/merge/b/tests/fuzz/fuzz_chat" "/tmp/me/merge/tests/fuzz/corpus/chat")
set_tests_properties([=[fuzz_chat]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;32;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_parse]=] "/tmp/me/merge/b/tests/fuzz/fuzz_parse" "/tmp/me/merge/tests/fuzz/corpus/parse")
set_tests_properties([=[fuzz_parse]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;33;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_config]=] "/tmp/me/merge/b/tests/fuzz/fuzz_config" "/tmp/me/merge/tests/fuzz/corpus/config")
set_tests_properties([=[fuzz_config]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;34;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_index]=] "/tmp/me/merge/b/tests/fuzz/fuzz_index" "/tmp/me/merge/tests/fuzz/corpus/index")
set_tests_properties([=[fuzz_index]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;35;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_header]=] "/tmp/me/merge/b/tests/fuzz/fuzz_header" "/tmp/me/merge/tests/fuzz/corpus/header")
set_tests_properties([=[fuzz_header]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;36;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_ranks]=] "/tmp/me/merge/b/tests/fuzz/fuzz_ranks" "/tmp/me/merge/tests/fuzz/corpus/ranks")
set_tests_properties([=[fuzz_ranks]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;37;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_encode]=] "/tmp/me/merge/b/tests/fuzz/fuzz_encode" "/tmp/me/merge/tests/fuzz/corpus/encode")
set_tests_properties([=[fuzz_encode]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;38;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_store]=] "/tmp/me/merge/b/tests/fuzz/fuzz_store" "/tmp/me/merge/tests/fuzz/corpus/store")
set_tests_properties([=[fuzz_store]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;40;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_token]=] "/tmp/me/merge/b/tests/fuzz/fuzz_token" "/tmp/me/merge/tests/fuzz/corpus/token")
set_tests_properties([=[fuzz_token]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;42;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_roster]=] "/tmp/me/merge/b/tests/fuzz/fuzz_roster" "/tmp/me/merge/tests/fuzz/corpus/roster")
set_tests_properties([=[fuzz_roster]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;43;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_frame]=] "/tmp/me/merge/b/tests/fuzz/fuzz_frame" "/tmp/me/merge/tests/fuzz/corpus/frame")
set_tests_properties([=[fuzz_frame]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;46;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_txt]=] "/tmp/me/merge/b/tests/fuzz/fuzz_txt" "/tmp/me/merge/tests/fuzz/corpus/txt")
set_tests_properties([=[fuzz_txt]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/fuzz/CMakeLists.txt;18;add_test;/tmp/me/merge/tests/fuzz/CMakeLists.txt;49;shoal_fuzz;/tmp/me/merge/tests/fuzz/CMakeLists.txt;0;")
