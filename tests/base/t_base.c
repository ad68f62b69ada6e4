/* SPDX-License-Identifier: MIT
 * t_base.c: the shared base: errors, bounded buffers, digests (FIPS 180-4 vectors), files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/base/num.h"
#include "proto/base/qos.h"
#include "proto/base/sha256.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

static void errors_say_what_and_where(void **s)
{
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_FORMAT, "tensor %s", "a"), ERR_FORMAT);
    err_prefix(&e, "shard %d", 3);
    assert_string_equal(e.msg, "shard 3: tensor a");
    assert_int_equal(err_sys(&e, ENOSPC, "cannot write %s", "x"), ERR_FULL);
    assert_int_equal(e.code, ERR_FULL);
    assert_non_null(strstr(e.msg, "cannot write x: "));
    assert_int_equal(err_set(NULL, ERR_IO, "nobody listens"), ERR_IO);
    char longer[2000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    err_set(&e, ERR_IO, "%s", longer);
    err_prefix(&e, "p");
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_string_equal(err_text(ERR_DIGEST), "checksum mismatch");
}

static void buffers_stop_at_their_maximum(void **s)
{
    struct buf b;
    buf_init(&b, 10);
    assert_int_equal(buf_adds(&b, "0123456"), 0);
    assert_int_equal(buf_adds(&b, "789X"), ERR_LIMIT);
    assert_string_equal(b.p, "0123456");
    assert_int_equal(buf_addf(&b, "%d", 789), 0);
    assert_int_equal(b.n, 10);
    assert_int_equal(buf_add(&b, "", 0), 0);
    assert_int_equal(buf_add(&b, "z", 1), ERR_LIMIT);
    size_t n;
    char *p = buf_take(&b, &n);
    assert_int_equal(n, 10);
    assert_string_equal(p, "0123456789");
    free(p);
    buf_free(&b);
}

static void sha256_vectors(void **s)
{
    uint8_t d[32];
    char h[65];
    sha256("abc", 3, d);
    sha256_hex(d, h);
    assert_string_equal(h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256("", 0, d);
    sha256_hex(d, h);
    assert_string_equal(h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    struct sha256 c;
    sha256_init(&c);
    char block[1000];
    memset(block, 'a', sizeof block);
    for (int i = 0; i < 1000; i++) { /* the million-a vector, in pieces */
        sha256_add(&c, block, sizeof block);
    }
    sha256_done(&c, d);
    sha256_hex(d, h);
    assert_string_equal(h, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void files_are_written_whole(void **s)
{
    char dir[] = "/tmp/t_base_XXXXXX";
    assert_non_null(mkdtemp(dir));
    char sub[128], path[160];
    snprintf(sub, sizeof sub, "%s/a/b", dir);
    snprintf(path, sizeof path, "%s/f", sub);
    struct err e = {0};
    assert_int_equal(file_mkdirs(sub, &e), 0);
    assert_int_equal(file_write_atomic(path, "hello", 5, 0600, &e), 0);
    assert_int_equal(file_write_atomic(path, "world!", 6, 0600, &e), 0);
    struct buf b;
    buf_init(&b, 6);
    assert_int_equal(file_read_all(path, &b, &e), 0);
    assert_string_equal(b.p, "world!");
    buf_free(&b);
    buf_init(&b, 5);
    assert_int_equal(file_read_all(path, &b, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, path));
    buf_free(&b);
    char none[160];
    snprintf(none, sizeof none, "%s/none/x", dir);
    assert_int_equal(file_read_all(none, &b, &e), ERR_NOTFOUND);
    assert_int_equal(file_mkdirs(path, &e), ERR_IO);
    unlink(path);
    rmdir(sub);
    sub[strlen(sub) - 2] = 0;
    rmdir(sub);
    rmdir(dir);
}

static void lengths_are_checked(void **s)
{
    uint64_t r = 7;
    assert_false(num_add_u64(UINT64_MAX, 1, &r));
    assert_false(num_mul_u64(UINT64_C(1) << 40, UINT64_C(1) << 24, &r));
    assert_int_equal(r, 7);
    assert_true(num_mul_u64(3, 5, &r));
    assert_int_equal(r, 15);
    uint8_t b[8];
    num_put_le64(b, UINT64_C(0x0102030405060708));
    assert_int_equal(b[0], 8);
    assert_true(num_get_le64(b) == UINT64_C(0x0102030405060708));
    uint64_t t = clock_ns();
    assert_true(clock_ns() >= t);
}

static void *lowered(void *arg)
{
    int *v = arg;
    qos_self(QOS_ANSWER);
    qos_self(QOS_SERVE);
    v[0] = getpriority(PRIO_PROCESS, 0);
    qos_self(QOS_UPKEEP);
    v[1] = getpriority(PRIO_PROCESS, 0);
    return NULL;
}

/* Of the thread that says it, and of no other. On the Mac classes are not seen in this number. */
static void a_thread_lowers_itself_alone(void **s)
{
    pthread_t t;
    int v[2] = {-1, -1}, before = getpriority(PRIO_PROCESS, 0);
    assert_int_equal(pthread_create(&t, NULL, lowered, v), 0);
    pthread_join(t, NULL);
    assert_int_equal(v[0], before);
#ifndef __APPLE__
    assert_int_equal(v[1], before > 15 ? before : 15);
#endif
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(buffers_stop_at_their_maximum),
        cmocka_unit_test(sha256_vectors),
        cmocka_unit_test(files_are_written_whole),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(a_thread_lowers_itself_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
