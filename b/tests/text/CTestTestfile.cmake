# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/text
# Build directory: /tmp/me/merge/b/tests/text
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_tok]=] "/tmp/me/merge/b/tests/text/t_tok")
set_tests_properties([=[t_tok]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;1;shoal_test;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
add_test([=[t_tok_oracle]=] "/tmp/me/merge/b/tests/text/t_tok_oracle")
set_tests_properties([=[t_tok_oracle]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;2;shoal_test;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
add_test([=[tok_oracle_npm]=] "/tmp/me/merge/tests/build/npm-run" "/tmp/me/merge/tests/text/oracle" "/tmp/me/merge/b/tests/text/oracle" "compare.mjs" "/tmp/me/merge/b/tests/text/tok_driver")
set_tests_properties([=[tok_oracle_npm]=] PROPERTIES  LABELS "oracle" RESOURCE_LOCK "tok_oracle" TIMEOUT "600" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;33;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;5;shoal_oracle;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
add_test([=[tok_oracle_classes]=] "/tmp/me/merge/tests/build/npm-run" "/tmp/me/merge/tests/text/oracle" "/tmp/me/merge/b/tests/text/oracle" "classes.mjs" "/tmp/me/merge/node/text")
set_tests_properties([=[tok_oracle_classes]=] PROPERTIES  LABELS "oracle" RESOURCE_LOCK "tok_oracle" TIMEOUT "600" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;33;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;6;shoal_oracle;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
add_test([=[t_chat]=] "/tmp/me/merge/b/tests/text/t_chat")
set_tests_properties([=[t_chat]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;10;shoal_test;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
add_test([=[t_chat_pyjson]=] "/tmp/me/merge/b/tests/text/t_chat_pyjson")
set_tests_properties([=[t_chat_pyjson]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;11;shoal_test;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
add_test([=[t_parse]=] "/tmp/me/merge/b/tests/text/t_parse")
set_tests_properties([=[t_parse]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/text/CMakeLists.txt;12;shoal_test;/tmp/me/merge/tests/text/CMakeLists.txt;0;")
