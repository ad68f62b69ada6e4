# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/store
# Build directory: /tmp/me/merge/b/tests/store
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_store_folder]=] "/tmp/me/merge/b/tests/store/t_store_folder")
set_tests_properties([=[t_store_folder]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;1;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_http]=] "/tmp/me/merge/b/tests/store/t_store_http")
set_tests_properties([=[t_store_http]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;2;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_cache]=] "/tmp/me/merge/b/tests/store/t_store_cache")
set_tests_properties([=[t_store_cache]=] PROPERTIES  TIMEOUT "300" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_kill]=] "/tmp/me/merge/b/tests/store/t_store_kill")
set_tests_properties([=[t_store_kill]=] PROPERTIES  TIMEOUT "300" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;5;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_threads]=] "/tmp/me/merge/b/tests/store/t_store_threads")
set_tests_properties([=[t_store_threads]=] PROPERTIES  LABELS "threads" TIMEOUT "300" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;6;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_nginx]=] "/tmp/me/merge/b/tests/store/t_store_nginx")
set_tests_properties([=[t_store_nginx]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;8;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_parts]=] "/tmp/me/merge/b/tests/store/t_store_parts")
set_tests_properties([=[t_store_parts]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;9;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
add_test([=[t_store_full]=] "/tmp/me/merge/b/tests/store/t_store_full")
set_tests_properties([=[t_store_full]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/store/CMakeLists.txt;10;shoal_test;/tmp/me/merge/tests/store/CMakeLists.txt;0;")
