/* SPDX-License-Identifier: MIT
 * t_mesh_file.c: small files from members: whole, in parts, from the next one where one fails, and
 * what asking and answering refuse. */
#include "tests/peer/bare_mesh.h"

#include "peer/b32.h"

#define FILES 8

struct file {
    char name[64];
    uint64_t size;
};

/* A kit with files, read by a thread of its own. */
struct node {
    struct kit_mesh k; /* first: the ctx of the mesh's callbacks */
    struct file files[FILES];
    pthread_mutex_t mu;
    pthread_cond_t cond;
    pthread_t thread;
    struct mesh_file_read *queue[256];
    size_t n_queue, out, most; /* out: not answered; most: of it at a time */
    size_t reads, hold_after;  /* after so many reads none is answered; 0: all are */
    uint64_t first_off;        /* offset of the first read */
    bool stop, at_once;
    int fail;       /* code of each answer */
    uint64_t twist; /* added to the size that is told */
};

static uint8_t byte_of(const char *name, uint64_t i)
{
    return (uint8_t)((i * 2654435761u >> 13) + (uint8_t)name[0] + i / 1000003);
}

static const uint8_t *scope(void)
{
    static const uint8_t s[SHA256_SIZE] = {9, 8, 7};
    return s;
}

static void answer(struct node *n, struct mesh_file_read *r)
{
    const struct file *f = NULL;
    for (size_t i = 0; i < FILES; i++) {
        if (n->files[i].name[0] && strcmp(n->files[i].name, r->name) == 0) {
            f = &n->files[i];
        }
    }
    if (!f || memcmp(scope(), r->scope, SHA256_SIZE) != 0 || n->fail) {
        r->done(r, n->fail ? n->fail : ERR_NOTFOUND);
        return;
    }
    r->total = f->size + n->twist;
    r->got = r->off >= f->size ? 0 : f->size - r->off < r->n ? (size_t)(f->size - r->off) : r->n;
    r->p = malloc(r->got + 1);
    assert_non_null(r->p);
    for (size_t i = 0; i < r->got; i++) {
        r->p[i] = byte_of(r->name, r->off + i);
    }
    r->done(r, 0);
}

static void *reader(void *arg)
{
    struct node *n = arg;
    pthread_mutex_lock(&n->mu);
    while (!n->stop || n->n_queue) {
        bool held = n->hold_after && n->reads >= n->hold_after && !n->stop;
        if (!n->n_queue || held) {
            pthread_cond_wait(&n->cond, &n->mu);
            continue;
        }
        struct mesh_file_read *r = n->queue[0];
        memmove(n->queue, n->queue + 1, --n->n_queue * sizeof n->queue[0]);
        n->reads++;
        n->out--;
        pthread_mutex_unlock(&n->mu);
        answer(n, r);
        pthread_mutex_lock(&n->mu);
    }
    pthread_mutex_unlock(&n->mu);
    return NULL;
}

static void file_read(void *ctx, struct mesh_file_read *r)
{
    struct node *n = ctx;
    assert_true(r->n >= 1 && r->n <= WIRE_RAW_MAX);
    if (n->at_once) {
        answer(n, r);
        return;
    }
    pthread_mutex_lock(&n->mu);
    if (!n->reads && !n->n_queue) {
        n->first_off = r->off;
    }
    assert_true(n->n_queue < 256);
    n->queue[n->n_queue++] = r;
    n->out++;
    n->most = n->out > n->most ? n->out : n->most;
    pthread_cond_signal(&n->cond);
    pthread_mutex_unlock(&n->mu);
}

static void node_init(struct node *n, struct node *keeper)
{
    memset(n, 0, sizeof *n);
    kit_home(&n->k, keeper ? &keeper->k : NULL);
    pthread_mutex_init(&n->mu, NULL);
    pthread_cond_init(&n->cond, NULL);
    n->k.o.file_read = file_read;
    assert_int_equal(pthread_create(&n->thread, NULL, reader, n), 0);
}

static void node_stop(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    n->stop = true;
    pthread_cond_signal(&n->cond);
    pthread_mutex_unlock(&n->mu);
}

static void node_free(struct node *n)
{
    node_stop(n);
    kit_free(&n->k);
    pthread_join(n->thread, NULL);
    pthread_mutex_destroy(&n->mu);
    pthread_cond_destroy(&n->cond);
}

static void release(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    n->hold_after = 0;
    pthread_cond_signal(&n->cond);
    pthread_mutex_unlock(&n->mu);
}

static void file(struct node *n, int i, const char *name, uint64_t size)
{
    snprintf(n->files[i].name, sizeof n->files[i].name, "%s", name);
    n->files[i].size = size;
}

static size_t reads_of(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    size_t r = n->reads;
    pthread_mutex_unlock(&n->mu);
    return r;
}

/* The file is there, whole, and given by `giver` (or anybody). */
static void want(struct node *n, const char *name, uint64_t size, struct node *giver)
{
    struct buf b;
    struct err e = {0};
    char from[MESH_SHORT] = "";
    buf_init(&b, 64u << 20);
    ok(buf_adds(&b, "head"));
    ok(mesh_file(n->k.m, scope(), name, 32u << 20, 60000, &b, from, &e));
    assert_int_equal(b.n, size + 4);
    assert_memory_equal(b.p, "head", 4);
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)b.p[i + 4] != byte_of(name, i)) {
            fail_msg("%s differs at %zu", name, i);
        }
    }
    if (giver) {
        char s[MESH_SHORT];
        char all[B32_CHARS(SHA256_SIZE) + 1];
        b32_encode(mesh_id(giver->k.m)->b, SHA256_SIZE, all);
        memcpy(s, all, MESH_SHORT - 1);
        s[MESH_SHORT - 1] = 0;
        assert_string_equal(from, s);
    }
    buf_free(&b);
}

static void want_fail(struct node *n, const char *name, uint64_t max, int code, const char *words)
{
    struct buf b;
    struct err e = {0};
    uint64_t t = clock_ns();
    buf_init(&b, 64u << 20);
    fails(mesh_file(n->k.m, scope(), name, max, 60000, &b, NULL, &e), code, words);
    assert_int_equal(b.n, 0);
    assert_true(clock_ns() - t < 50ull * 1000000000u); /* not its time limit of 60 s */
    buf_free(&b);
}

static void connect_pair(struct node *a, struct node *b)
{
    kit_open(&a->k);
    kit_static(&b->k, mesh_port(a->k.m));
    kit_open(&b->k);
    assert_int_equal(mesh_wait_peers(a->k.m, 1, 60000), 1);
    assert_int_equal(mesh_wait_peers(b->k.m, 1, 60000), 1);
}

static void *want_five(void *arg)
{
    want(arg, "five", 5 * WIRE_RAW_MAX + 7, NULL);
    return NULL;
}

static void test_files(void **state)
{
    struct node a, b;
    node_init(&a, NULL);
    node_init(&b, &a);
    file(&a, 0, "config.json", 700);
    file(&a, 1, "none", 0);
    file(&a, 2, "dir/one \xc3\xa9", 1);
    file(&a, 3, "mib", WIRE_RAW_MAX);
    file(&a, 4, "more", WIRE_RAW_MAX + 1);
    file(&a, 5, "five", 5 * WIRE_RAW_MAX + 7);
    b.k.o.has_model = false; /* one that has nothing yet */
    a.k.o.name = "Anna's\x01 Mac";
    connect_pair(&a, &b);
    want(&b, "config.json", 700, &a);
    want(&b, "none", 0, &a);
    want(&b, "dir/one \xc3\xa9", 1, &a);
    want(&b, "mib", WIRE_RAW_MAX, &a);
    want(&b, "more", WIRE_RAW_MAX + 1, &a);
    want(&b, "five", 5 * WIRE_RAW_MAX + 7, &a);
    assert_int_equal(reads_of(&a), 4 + 2 + 6);
    assert_true(a.most >= 2 && a.most <= WIRE_FILE_OPEN); /* several under way */
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, want_five, &b), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(reads_of(&a), 12 + 4 * 6);
    assert_true(a.most <= WIRE_FILE_OPEN);
    assert_int_equal((int)kit_status(&a.k, "peers.0.files_served"), 12 + 4 * 6);
    assert_true(kit_status(&a.k, "peers.0.file_bytes_served") > 25e6);
    assert_true(kit_status(&b.k, "peers.0.last") > 1e9);
    struct buf s;
    struct err e = {0};
    buf_init(&s, 8u << 20);
    ok(mesh_status(b.k.m, &s, &e));
    assert_non_null(strstr(s.p, "\"name\":\"Anna's Mac\""));
    buf_free(&s);
    /* what does not go */
    want_fail(&b, "unknown", 1000, ERR_NOTFOUND, "no connected peer has");
    want_fail(&b, "config.json", 699, ERR_LIMIT, "700 bytes");
    want_fail(&b, "../config.json", 1000, ERR_ARG, "of that name");
    want_fail(&b, "", 1000, ERR_ARG, "of that name");
    struct buf small;
    buf_init(&small, 10);
    fails(mesh_file(b.k.m, scope(), "config.json", 1000, 0, &small, NULL, &e), ERR_LIMIT, "700");
    buf_free(&small);
    want_fail(&a, "config.json", 1000, ERR_NOTFOUND, "no connected peer has"); /* B has none */
    node_free(&b);
    node_free(&a);
}

struct later {
    struct node *n;
    const char *name;
    uint64_t size;
};

static void *want_later(void *arg)
{
    struct later *l = arg;
    want(l->n, l->name, l->size, NULL);
    return NULL;
}

/* A gives three parts and then nothing; it leaves; C goes on with what is missing. */
static void test_next_peer(void **state)
{
    struct node a, b, c;
    node_init(&a, NULL);
    node_init(&b, &a);
    node_init(&c, &a);
    file(&a, 0, "long", 9 * WIRE_RAW_MAX - 5);
    file(&c, 0, "long", 9 * WIRE_RAW_MAX - 5);
    a.hold_after = 3;
    connect_pair(&a, &b);
    struct later l = {&b, "long", 9 * WIRE_RAW_MAX - 5};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, want_later, &l), 0);
    mesh_until(reads_of(&a) == 3);
    kit_static(&c.k, mesh_port(b.k.m));
    kit_open(&c.k);
    assert_int_equal(mesh_wait_peers(c.k.m, 1, 60000), 1);
    assert_int_equal(reads_of(&c), 0);
    mesh_sleep(a.k.m);
    pthread_join(t, NULL);
    size_t n = reads_of(&c);
    assert_true(n >= 6 && n <= 8); /* the answers of A may have been on their way */
    assert_true(c.first_off >= WIRE_RAW_MAX);
    node_free(&c);
    node_free(&b);
    node_free(&a);
}

/* One that is silent is left after a while, though it is connected and alive. */
static void test_silent_peer(void **state)
{
    struct node a, b, c;
    node_init(&a, NULL);
    node_init(&b, &a);
    node_init(&c, &a);
    file(&a, 0, "x", 3000);
    a.hold_after = 1;
    a.reads = 1;
    connect_pair(&a, &b);
    struct later l = {&b, "x", 3000};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, want_later, &l), 0);
    mesh_until(a.out == 1);
    file(&c, 0, "x", 3000);
    kit_static(&c.k, mesh_port(b.k.m));
    kit_open(&c.k);
    pthread_join(t, NULL);
    assert_int_equal(reads_of(&c), 1);
    assert_int_equal(mesh_peers(b.k.m), 2);
    /* its late answer is nobody's, and harms nobody */
    release(&a);
    mesh_until(reads_of(&a) == 2);
    want(&b, "x", 3000, NULL);
    node_free(&c);
    node_free(&b);
    node_free(&a);
}

/* Failing ones and liars, each beside one that has it. */
static void test_bad_peers(void **state)
{
    static const struct {
        int fail;
        uint64_t twist;
    } bad[] = {{ERR_NOTFOUND, 0}, {ERR_BUSY, 0}, {ERR_IO, 0},
               {ERR_REFUSED, 0},  {0, 1},        {0, 1ull << 40}};
    struct node a, b, c;
    node_init(&a, NULL);
    node_init(&b, &a);
    node_init(&c, &a);
    for (int i = 0; i < 2; i++) {
        file(i ? &a : &c, 0, "big", 3 * WIRE_RAW_MAX);
        file(i ? &a : &c, 1, "small", 100);
    }
    a.at_once = true; /* answers before the call returns */
    connect_pair(&a, &b);
    kit_static(&c.k, mesh_port(b.k.m));
    kit_open(&c.k);
    assert_int_equal(mesh_wait_peers(b.k.m, 2, 60000), 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        a.fail = bad[i].fail;
        a.twist = bad[i].twist;
        for (int k = 0; k < 3; k++) {
            want(&b, "big", 3 * WIRE_RAW_MAX, NULL);
            want(&b, "small", 100, NULL);
        }
    }
    /* both: an error that says so */
    c.fail = ERR_NOTFOUND;
    a.fail = 0;
    a.twist = 1;
    want_fail(&b, "big", 32u << 20, ERR_BUSY, "no connected peer gave");
    node_free(&c);
    node_free(&b);
    node_free(&a);
}

static void *close_it(void *arg)
{
    struct node *n = arg;
    usleep(300000);
    mesh_close(n->k.m);
    return NULL;
}

/* Nobody there, an older program, the caller's time, the end of the mesh. */
static void test_nobody(void **state)
{
    struct node a, b;
    struct buf out;
    struct err e = {0};
    node_init(&a, NULL);
    node_init(&b, &a);
    file(&a, 0, "x", 100);
    kit_open(&b.k);
    want_fail(&b, "x", 1000, ERR_NOTFOUND, "no connected peer has");
    kit_close(&b.k);
    a.k.o.no_features = true;
    connect_pair(&a, &b);
    want_fail(&b, "x", 1000, ERR_NOTFOUND, "no connected peer has");
    assert_int_equal(reads_of(&a), 0);
    kit_close(&a.k);
    a.k.o.no_features = false;
    a.k.o.file_read = NULL;
    mesh_until(mesh_peers(b.k.m) == 0);
    kit_open(&a.k);
    char text[64];
    snprintf(text, sizeof text, "127.0.0.1:%d", mesh_port(a.k.m));
    mesh_add_static(b.k.m, text, &e);
    assert_int_equal(mesh_wait_peers(b.k.m, 1, 60000), 1);
    want_fail(&b, "x", 1000, ERR_NOTFOUND, "gives no files");
    kit_close(&a.k);
    /* the reader holds: first the caller's time ends, then the mesh */
    a.k.o.file_read = file_read;
    a.hold_after = 1;
    a.reads = 1;
    mesh_until(mesh_peers(b.k.m) == 0);
    kit_open(&a.k);
    snprintf(text, sizeof text, "127.0.0.1:%d", mesh_port(a.k.m));
    mesh_add_static(b.k.m, text, &e);
    assert_int_equal(mesh_wait_peers(b.k.m, 1, 60000), 1);
    buf_init(&out, 1000);
    fails(mesh_file(b.k.m, scope(), "x", 1000, 100, &out, NULL, &e), ERR_TIMEOUT, "in time");
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, close_it, &b), 0);
    int r = mesh_file(b.k.m, scope(), "x", 1000, 60000, &out, NULL, &e);
    pthread_join(t, NULL);
    b.k.m = NULL;
    assert_true(r == ERR_CANCELLED);
    buf_free(&out);
    node_free(&b);
    node_free(&a);
}

/* ---- a bare connection ---- */

static void file_get(struct bare *b, uint64_t id, const char *name)
{
    Shoal__FileGet g = SHOAL__FILE_GET__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    g.id = id;
    g.scope.data = (uint8_t *)(uintptr_t)scope();
    g.scope.len = SHA256_SIZE;
    g.name = (char *)(uintptr_t)name;
    g.length = 50;
    f.kind_case = SHOAL__FRAME__KIND_FILE_GET;
    f.file_get = &g;
    bare_send(b, &f);
}

static Shoal__FileResult results[8];
static size_t lengths[8];

static void see(struct bare *b, const Shoal__Frame *f, const struct frame *raw)
{
    (void)b;
    if (f->kind_case == SHOAL__FRAME__KIND_FILE_DATA) {
        results[f->file_data->id & 7] = f->file_data->result;
        lengths[f->file_data->id & 7] = raw->raw_n;
    }
}

static void hello(struct bare *b, struct node *a)
{
    bare_connect(b, mesh_port(a->k.m));
    bare_hello(b);
    bare_until(b, b->kinds[SHOAL__FRAME__KIND_HELLO] && mesh_peers(a->k.m) == 1);
}

static void test_rude(void **state)
{
    struct node a;
    struct bare b;
    node_init(&a, NULL);
    bare_open(&b, &a.k);
    b.on_message = see;
    file(&a, 0, "x", 80);
    kit_open(&a.k);
    hello(&b, &a);
    file_get(&b, 1, "x");
    file_get(&b, 2, "y");
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_FILE_DATA] == 2);
    assert_int_equal(results[1], SHOAL__FILE_RESULT__FILE_OK);
    assert_int_equal(lengths[1], 50);
    assert_int_equal(results[2], SHOAL__FILE_RESULT__FILE_NOT_HELD);
    /* more at a time than is allowed */
    pthread_mutex_lock(&a.mu);
    a.hold_after = a.reads;
    pthread_mutex_unlock(&a.mu);
    for (uint64_t i = 0; i < WIRE_FILE_OPEN + 1; i++) {
        file_get(&b, 10 + i, "x");
    }
    bare_until(&b, b.log.closes);
    assert_int_equal(b.goodbye, SHOAL__GOODBYE_REASON__GOODBYE_PROTOCOL);
    assert_true(strstr(b.text, "too many are open"));
    mesh_until(mesh_peers(a.k.m) == 0);
    /* an answer that nobody asked for */
    hello(&b, &a);
    Shoal__FileData d = SHOAL__FILE_DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    d.id = 1;
    d.result = SHOAL__FILE_RESULT__FILE_NOT_HELD;
    f.kind_case = SHOAL__FRAME__KIND_FILE_DATA;
    f.file_data = &d;
    bare_send(&b, &f);
    bare_until(&b, b.log.closes);
    assert_true(strstr(b.text, "not asked for"));
    /* before hello */
    mesh_until(mesh_peers(a.k.m) == 0);
    bare_connect(&b, mesh_port(a.k.m));
    file_get(&b, 1, "x");
    bare_until(&b, b.log.closes);
    assert_true(strstr(b.text, "FileGet at the wrong time"));
    bare_close(&b);
    node_free(&a); /* with four reads held until now */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),       cmocka_unit_test(test_next_peer),
        cmocka_unit_test(test_silent_peer), cmocka_unit_test(test_bad_peers),
        cmocka_unit_test(test_nobody),      cmocka_unit_test(test_rude),
    };
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
