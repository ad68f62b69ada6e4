/* SPDX-License-Identifier: MIT
 * t_control.c: the control socket: lines and their limits, clients that misbehave, homes with long
 * paths, owners that die. */
#include "peer/home_util.h"

#include "node/daemon/control.h"
#include "node/daemon/node.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define until(x)                                                     \
    do {                                                             \
        int tries_ = 0;                                              \
        while (!(x)) {                                               \
            if (++tries_ > 30000) {                                  \
                fail_msg("%s:%d never: %s", __FILE__, __LINE__, #x); \
            }                                                        \
            usleep(1000);                                            \
        }                                                            \
    } while (0)

/* ---- a server with a few requests ---- */

struct server {
    char *home;
    int lock;
    struct control *c;
    pthread_mutex_t mu;
    pthread_t late[64];
    int n_late;
    _Atomic(int) gone, hold;
};

struct late {
    struct server *s;
    struct control_to to;
};

static void *late_main(void *ctx)
{
    struct late *l = ctx;
    while (atomic_load(&l->s->hold)) {
        usleep(1000);
    }
    control_answer(l->s->c, &l->to, json_pack("{s:s}", "was", "late"));
    free(l);
    return NULL;
}

static void on_request(void *ctx, const struct control_to *to, json_t *req)
{
    struct server *s = ctx;
    const char *op = json_string_value(json_object_get(req, "op"));
    struct err e = {0};
    if (!strcmp(op, "echo")) {
        control_answer(s->c, to, json_pack("{s:O?}", "text", json_object_get(req, "text")));
    } else if (!strcmp(op, "late")) {
        struct late *l = malloc(sizeof *l);
        assert_non_null(l);
        *l = (struct late){s, *to};
        assert_true(s->n_late < 64);
        assert_int_equal(pthread_create(&s->late[s->n_late++], NULL, late_main, l), 0);
    } else if (!strcmp(op, "big")) {
        char *t = malloc((1 << 20) + 1);
        assert_non_null(t);
        memset(t, 'x', 1 << 20);
        t[1 << 20] = 0;
        control_answer(s->c, to, json_pack("{s:s}", "text", t));
        free(t);
    } else if (!strcmp(op, "huge")) {
        char *t = malloc(CONTROL_ANSWER_MAX + 1);
        assert_non_null(t);
        memset(t, 'x', CONTROL_ANSWER_MAX);
        t[CONTROL_ANSWER_MAX] = 0;
        control_answer(s->c, to, json_pack("{s:s}", "text", t));
        free(t);
    } else if (strcmp(op, "never") != 0) {
        err_set(&e, ERR_UNSUPPORTED, "no such thing: %s \xff", op);
        control_fail(s->c, to, e.code, &e);
    }
    json_decref(req);
}

static void on_gone(void *ctx, uint64_t client)
{
    struct server *s = ctx;
    assert_true(client > 0);
    atomic_fetch_add(&s->gone, 1);
}

static void start_at(struct server *s, char *home, unsigned stuck_ms)
{
    struct err e = {0};
    memset(s, 0, sizeof *s);
    s->home = home;
    struct control_ops ops = {s, on_request, on_gone, stuck_ms};
    ok(control_lock(s->home, &s->lock, &e));
    ok(control_open(s->home, &ops, &s->c, &e));
}

static void start(struct server *s, unsigned stuck_ms)
{
    start_at(s, temp_home(), stuck_ms);
}

static void stop(struct server *s)
{
    control_stop(s->c);
    atomic_store(&s->hold, 0);
    for (int i = 0; i < s->n_late; i++) {
        pthread_join(s->late[i], NULL);
    }
    control_free(s->c);
    close(s->lock);
}

static void end(struct server *s)
{
    stop(s);
    drop_home(s->home);
}

/* ---- a client by hand ---- */

static int dial(const char *home)
{
    int fd;
    struct err e = {0};
    ok(control_connect(home, &fd, &e));
    return fd;
}

static void tell(int fd, const char *p, size_t n)
{
    while (n) {
        long k = control_send(fd, p, n);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else {
            assert_true(k < 0 && (errno == EAGAIN || errno == EINTR));
            struct pollfd w = {.fd = fd, .events = POLLOUT};
            poll(&w, 1, 20000);
        }
    }
}

static void says(int fd, const char *line)
{
    tell(fd, line, strlen(line));
}

/* One line as JSON, NULL: hung up. */
static json_t *hear(int fd)
{
    struct buf b;
    buf_init(&b, CONTROL_ANSWER_MAX);
    json_t *j = NULL;
    for (;;) {
        char c;
        ssize_t n = recv(fd, &c, 1, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            struct pollfd w = {.fd = fd, .events = POLLIN};
            assert_true(poll(&w, 1, 60000) > 0);
            continue;
        }
        if (n <= 0 || c == '\n') {
            if (n > 0) {
                j = json_loadb(b.p ? b.p : "", b.n, 0, NULL);
                assert_non_null(j);
            }
            break;
        }
        assert_int_equal(buf_add(&b, &c, 1), 0);
    }
    buf_free(&b);
    return j;
}

static void hears(int fd, int seq, const char *key, const char *value)
{
    json_t *j = hear(fd);
    assert_non_null(j);
    assert_int_equal(json_integer_value(json_object_get(j, "seq")), seq);
    assert_string_equal(json_string_value(json_object_get(j, key)), value);
    json_decref(j);
}

/* The next line is an error with this code; seq -1: none. */
static void hears_error(int fd, int seq, int code)
{
    struct err e = {0};
    json_t *j = hear(fd);
    assert_non_null(j);
    const json_t *s = json_object_get(j, "seq");
    assert_int_equal(s ? (int)json_integer_value(s) : -1, seq);
    assert_int_equal(control_error(j, &e), code);
    assert_true(strlen(e.msg) > 5);
    json_decref(j);
}

static bool hung_up(int fd)
{
    json_t *j;
    while ((j = hear(fd)) != NULL) {
        json_decref(j);
    }
    return true;
}

/* ---- tests ---- */

static void test_lines(void **state)
{
    struct server s;
    start(&s, 0);
    int fd = dial(s.home);
    says(fd, "{\"op\":\"echo\",\"seq\":1,\"text\":\"one\"}\n{\"op\":\"echo\",\"seq\":2,"
             "\"text\":\"two\"}\r\n\n{\"op\":\"ec");
    hears(fd, 1, "text", "one");
    hears(fd, 2, "text", "two");
    says(fd, "ho\",\"seq\":3,\"text\":\"three\"}\n");
    hears(fd, 3, "text", "three");
    says(fd, "{\"op\":\"nothing\",\"seq\":4}\n");
    hears_error(fd, 4, ERR_UNSUPPORTED);
    /* what takes long does not hold up others, of the same client or another */
    atomic_store(&s.hold, 1);
    says(fd, "{\"op\":\"late\",\"seq\":5}\n{\"op\":\"echo\",\"seq\":6,\"text\":\"six\"}\n");
    hears(fd, 6, "text", "six");
    int other = dial(s.home);
    says(other, "{\"op\":\"echo\",\"seq\":5,\"text\":\"mine\"}\n");
    hears(other, 5, "text", "mine");
    atomic_store(&s.hold, 0);
    hears(fd, 5, "was", "late");
    close(other);
    close(fd);
    until(atomic_load(&s.gone) == 2);
    assert_int_equal(mode_of(at(s.home, "run")), 0700);
    assert_int_equal(mode_of(at(s.home, "run/control")), 0600);
    end(&s);
}

static void test_garbage(void **state)
{
    static const struct {
        const char *line;
        int seq, code;
    } bad[] = {
        {"hello", -1, ERR_FORMAT},
        {"{", -1, ERR_FORMAT},
        {"[]", -1, ERR_FORMAT},
        {"{\"op\":1}", -1, ERR_FORMAT},
        {"{\"op\":\"\"}", -1, ERR_FORMAT},
        {"{\"op\":\"0123456789012345678901234567890123\"}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\",\"seq\":\"1\"}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\",\"seq\":1.5}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\",\"seq\":1,\"seq\":2}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\",\"seq\":99999999999999999999}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\",\"text\":\"\xff\xfe\"}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\"} {}", -1, ERR_FORMAT},
        {"{\"op\":\"echo\",\"text\":[[[[[[[[[[1]]]]]]]]]]}", -1, ERR_LIMIT},
        {"GET / HTTP/1.1", -1, ERR_FORMAT},
    };
    struct server s;
    start(&s, 0);
    int fd = dial(s.home);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        says(fd, bad[i].line);
        says(fd, "\n");
        hears_error(fd, bad[i].seq, bad[i].code);
    }
    tell(fd, "\0\0{\0\n", 5);
    hears_error(fd, -1, ERR_FORMAT);
    /* brackets inside of a text do not count as nesting */
    says(fd, "{\"op\":\"echo\",\"seq\":7,\"text\":\"[[[[[[[[[[[[[[[\\\"[[[[\"}\n");
    hears(fd, 7, "text", "[[[[[[[[[[[[[[[\"[[[[");
    struct control_stats st;
    control_get_stats(s.c, &st);
    assert_int_equal(st.malformed, sizeof bad / sizeof *bad + 1);
    assert_int_equal(st.connected, 1);
    close(fd);
    end(&s);
}

/* {"op":"echo","seq":1,"text":"xx..."}, n bytes without the line end. */
static char *line_of(size_t n)
{
    static const char head[] = "{\"op\":\"echo\",\"seq\":1,\"text\":\"";
    char *p = malloc(n + 1);
    assert_non_null(p);
    memset(p, 'x', n);
    memcpy(p, head, sizeof head - 1);
    p[n - 2] = '"';
    p[n - 1] = '}';
    p[n] = '\n';
    return p;
}

static void test_lengths(void **state)
{
    struct server s;
    start(&s, 0);
    static const size_t fine[] = {64, 65535, 65536, 65537, CONTROL_LINE_MAX - 1};
    int fd = dial(s.home);
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        char *p = line_of(fine[i]);
        tell(fd, p, fine[i] + 1);
        json_t *j = hear(fd);
        assert_int_equal(json_string_length(json_object_get(j, "text")), fine[i] - 31);
        json_decref(j);
        free(p);
    }
    close(fd);
    /* one byte more, and far more: dropped, whether a line end follows or not */
    for (int k = 0; k < 3; k++) {
        size_t n = k ? 3u << 20 : CONTROL_LINE_MAX;
        char *p = line_of(n);
        fd = dial(s.home);
        size_t left = n + (k < 2);
        const char *q = p;
        while (left) {
            long sent = control_send(fd, q, left);
            if (sent > 0) {
                q += sent;
                left -= (size_t)sent;
            } else if (errno != EAGAIN && errno != EINTR) {
                break; /* as it should be */
            } else {
                usleep(1000);
            }
        }
        assert_true(hung_up(fd));
        close(fd);
        free(p);
    }
    until(atomic_load(&s.gone) == 4);
    fd = dial(s.home);
    says(fd, "{\"op\":\"huge\",\"seq\":3}\n");
    hears_error(fd, 3, ERR_LIMIT);
    close(fd);
    end(&s);
}

static void test_slow(void **state)
{
    struct server s;
    start(&s, 300);
    /* half a line, then nothing */
    int half = dial(s.home);
    says(half, "{\"op\":\"ec");
    /* bytes that come too slowly to ever end the line */
    int drip = dial(s.home);
    /* many large answers that are not taken */
    int greedy = dial(s.home);
    for (int i = 0; i < 64; i++) {
        char line[64];
        snprintf(line, sizeof line, "{\"op\":\"big\",\"seq\":%d}\n", i);
        says(greedy, line);
    }
    int good = dial(s.home);
    uint64_t t0 = clock_ns();
    bool dripped = true;
    for (int i = 0; i < 2000 && dripped; i++) {
        char line[64];
        snprintf(line, sizeof line, "{\"op\":\"echo\",\"seq\":%d,\"text\":\"x\"}\n", i);
        says(good, line);
        hears(good, i, "text", "x");
        dripped = control_send(drip, "x", 1) == 1;
        usleep(5000);
    }
    assert_false(dripped);
    assert_true(clock_ns() - t0 >= 250 * 1000000ull);
    until(atomic_load(&s.gone) == 3);
    assert_true(hung_up(half));
    assert_true(hung_up(greedy));
    struct control_stats st;
    control_get_stats(s.c, &st);
    assert_int_equal(st.dropped, 3);
    assert_int_equal(st.connected, 1);
    close(half);
    close(drip);
    close(greedy);
    close(good);
    end(&s);
}

static void test_many(void **state)
{
    struct server s;
    int fd[CONTROL_CLIENTS_MAX];
    struct err e = {0};
    json_t *a = NULL, *q = json_pack("{s:s,s:s}", "op", "echo", "text", "hello");
    start(&s, 0);
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        fd[i] = dial(s.home);
        says(fd[i], "{\"op\":\"echo\",\"seq\":9,\"text\":\"in\"}\n");
        hears(fd[i], 9, "text", "in");
    }
    for (int i = 0; i < 3; i++) {
        fails(node_ask(s.home, q, 0, &a, &e), ERR_BUSY, "too many");
    }
    close(fd[5]);
    until(atomic_load(&s.gone) == 1);
    ok(node_ask(s.home, q, 0, &a, &e));
    assert_string_equal(json_string_value(json_object_get(a, "text")), "hello");
    json_decref(a);
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (i != 5) {
            close(fd[i]);
        }
    }
    json_decref(q);
    end(&s);
}

/* More requests without an answer than one client may have. */
static void test_pending(void **state)
{
    struct server s;
    start(&s, 0);
    int fd = dial(s.home);
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < CONTROL_PENDING_MAX; i++) {
        assert_int_equal(buf_addf(&b, "{\"op\":\"never\",\"seq\":%d}\n", i), 0);
    }
    assert_int_equal(buf_adds(&b, "{\"op\":\"echo\",\"seq\":77,\"text\":\"x\"}\n"), 0);
    tell(fd, b.p, b.n);
    hears_error(fd, 77, ERR_LIMIT);
    buf_free(&b);
    close(fd);
    end(&s);
}

static void test_ask(void **state)
{
    struct server s;
    struct err e = {0};
    json_t *a = NULL, *q = json_pack("{s:s}", "op", "never");
    char *nobody = temp_home();
    fails(node_ask(nobody, q, 0, &a, &e), ERR_OFFLINE, "no node runs");
    fails(node_ask(at(nobody, "not/there"), q, 0, &a, &e), ERR_OFFLINE, "no node runs");
    drop_home(nobody);
    start(&s, 0);
    uint64_t t0 = clock_ns();
    fails(node_ask(s.home, q, 200, &a, &e), ERR_TIMEOUT, "has not answered");
    assert_true(clock_ns() - t0 >= 200 * 1000000ull);
    json_object_set_new(q, "op", json_string("unknown"));
    fails(node_ask(s.home, q, 0, &a, &e), ERR_UNSUPPORTED, "not supported");
    assert_null(a);
    json_object_del(q, "op");
    fails(node_ask(s.home, q, 0, &a, &e), ERR_ARG, "op");
    json_object_set_new(q, "op", json_string("echo"));
    json_object_set_new(q, "text", json_string("t"));
    control_stop(s.c);
    fails(node_ask(s.home, q, 0, &a, &e), ERR_OFFLINE, "no node runs");
    json_decref(q);
    end(&s);
}

/* A home whose path is longer than a socket's may be, seen from another folder, too. */
static void test_long_path(void **state)
{
    struct server s;
    struct err e = {0};
    char *root = temp_home(), *home = malloc(2048), cwd[4096];
    json_t *a = NULL, *q = json_pack("{s:s,s:s}", "op", "echo", "text", "far");
    assert_non_null(home);
    snprintf(home, 2048, "%s/%0100d/%0100d/home", root, 1, 2);
    start_at(&s, home, 0);
    ok(node_ask(home, q, 0, &a, &e));
    json_decref(a);
    assert_true(access(at(home, "run/control.at"), F_OK) == 0);
    struct buf b = slurp(at(home, "run/control.at"));
    assert_int_equal(mode_of(b.p), 0600);
    *strrchr(b.p, '/') = 0;
    assert_int_equal(mode_of(b.p), 0700);
    /* by a short name from inside */
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(home), 0);
    ok(node_ask(".", q, 0, &a, &e));
    json_decref(a);
    assert_int_equal(chdir(cwd), 0);
    /* a folder that others may write to is not believed */
    assert_int_equal(chmod(b.p, 0777), 0);
    fails(node_ask(home, q, 0, &a, &e), ERR_REFUSED, "alone");
    assert_int_equal(chmod(b.p, 0700), 0);
    stop(&s);
    fails(node_ask(home, q, 0, &a, &e), ERR_OFFLINE, "no node runs");
    assert_int_equal(rmdir(b.p), 0);
    fails(node_ask(home, q, 0, &a, &e), ERR_OFFLINE, "no node is found");
    buf_free(&b);
    json_decref(q);
    free(home);
    drop_home(root);
}

/* ---- processes ---- */

/* A process that owns the home, or exits with 3 because another does. It says so by a byte. */
static pid_t owner(const char *home, int *said)
{
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) {
        close(p[1]);
        *said = p[0];
        return pid;
    }
    struct server s;
    struct err e = {0};
    memset(&s, 0, sizeof s);
    int r = control_lock(home, &s.lock, &e);
    struct control_ops ops = {&s, on_request, NULL, 0};
    r = r ? r : control_open(home, &ops, &s.c, &e);
    char c = r == 0 ? 'o' : r == ERR_BUSY ? 'b' : 'x';
    if (write(p[1], &c, 1) != 1 || r) {
        _exit(r == ERR_BUSY ? 3 : 4);
    }
    for (;;) {
        pause();
    }
}

static char answer_of(int said)
{
    char c = 0;
    assert_int_equal(read(said, &c, 1), 1);
    close(said);
    return c;
}

static void kill_it(pid_t pid)
{
    int st;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFSIGNALED(st));
}

static void test_killed_owner(void **state)
{
    char *home = temp_home();
    struct err e = {0};
    json_t *a = NULL, *q = json_pack("{s:s,s:s}", "op", "echo", "text", "t");
    for (int i = 0; i < 5; i++) {
        int said, lock;
        pid_t pid = owner(home, &said);
        assert_int_equal(answer_of(said), 'o');
        ok(node_ask(home, q, 0, &a, &e));
        json_decref(a);
        char words[64];
        snprintf(words, sizeof words, "(process %d)", (int)pid);
        fails(control_lock(home, &lock, &e), ERR_BUSY, words);
        kill_it(pid);
        fails(node_ask(home, q, 0, &a, &e), ERR_OFFLINE, "no node runs");
    }
    struct server s; /* and nothing that is left keeps the next one out */
    start_at(&s, home, 0);
    ok(node_ask(home, q, 0, &a, &e));
    json_decref(a);
    json_decref(q);
    end(&s);
}

static void test_one_owner(void **state)
{
    char *home = temp_home();
    for (int round = 0; round < 5; round++) {
        enum { N = 6 };
        pid_t pid[N];
        int said[N], owners = 0, winner = -1, st;
        for (int i = 0; i < N; i++) {
            pid[i] = owner(home, &said[i]);
        }
        for (int i = 0; i < N; i++) {
            char c = answer_of(said[i]);
            assert_true(c == 'o' || c == 'b');
            owners += c == 'o';
            winner = c == 'o' ? i : winner;
        }
        assert_int_equal(owners, 1);
        for (int i = 0; i < N; i++) {
            if (i != winner) {
                assert_int_equal(waitpid(pid[i], &st, 0), pid[i]);
                assert_int_equal(WEXITSTATUS(st), 3);
            }
        }
        kill_it(pid[winner]);
    }
    drop_home(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_owner), cmocka_unit_test(test_one_owner),
        cmocka_unit_test(test_lines),        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_lengths),      cmocka_unit_test(test_slow),
        cmocka_unit_test(test_many),         cmocka_unit_test(test_pending),
        cmocka_unit_test(test_ask),          cmocka_unit_test(test_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
