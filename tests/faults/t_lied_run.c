/* SPDX-License-Identifier: MIT
 * t_lied_run.c: two members that tell and sign the same lies, so that neither samples nor spot
 * checks are made of them, are found out by an audit while their bytes are in use. Whoever computes
 * then (a run, requests of the engine, a second process on the home) begins anew and gives the
 * right answer, or says whose word it was; kept states that rest on it are thrown away. */
#include "tests/faults/liar.h"

#include "kernels/cpu.h"
#include "node/engine/engine.h"
#include "node/infer/generate.h"
#include "node/infer/logits.h"
#include "node/store/words.h"

#include <pthread.h>

#define N_PROMPT 24
#define BOUND 20 /* tokens of the prompt that the second request shares */
#define N_NEW 16
#define TELL 2 /* tokens told before the audit */

static char url[128];
static struct demo_server *origin;
static struct kit_node a, b;
static struct bad ev, ev2;
static struct kern_backend *be;
static uint32_t prompt[N_PROMPT], right_ids[N_NEW], right_other[N_NEW];
static char right[2 * SHA256_SIZE + 1], right2[2 * SHA256_SIZE + 1];

/* Experts are each other's. */
static uint32_t swaps(const struct model *m, uint32_t id)
{
    const struct model_object *o = model_object(m, id);
    return o->kind == MODEL_EXPERT
               ? model_expert_id(m, o->layer, (o->index + 1) % model_config(m)->n_experts)
               : id;
}

/* ---- audits ---- */

/* One after the other, until one finds a false object. */
static void audit(struct kit_node *k)
{
    struct err e = {0};
    uint64_t x = 88172645463325252u;
    int r = 0;
    for (int i = 0; i < 20000 && r != ERR_DIGEST; i++) {
        uint64_t bytes;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        r = store_words_audit(k->st, x, &bytes, &e);
        if (!bytes) {
            usleep(1000); /* nothing is on the disk yet */
        }
    }
    assert_int_equal(r, ERR_DIGEST);
    until(word(k, &ev.id, "void") == 1 && word(k, &ev2.id, "void") == 1);
}

struct telling {
    struct kit_node *k; /* who audits; NULL: nobody */
    size_t told;
    uint32_t ids[N_NEW];
    uint32_t again;
    bool forgets;
    char why[600];
    bool (*seen)(void); /* wait for this after the audit; may be NULL */
};

static int told(struct telling *t, uint32_t id)
{
    assert_true(t->told < N_NEW);
    t->ids[t->told++] = id;
    if (t->told == TELL && t->k && !t->again) {
        audit(t->k);
        while (t->seen && !t->seen()) {
            usleep(1000);
        }
    }
    return 0;
}

static bool again(void *ctx, const char *why)
{
    struct telling *t = ctx;
    t->again++;
    snprintf(t->why, sizeof t->why, "%s", why);
    t->told = t->forgets ? 0 : t->told;
    return t->forgets;
}

/* ---- a run ---- */

static int on_token(void *ctx, uint32_t id)
{
    return told(ctx, id);
}

static struct infer *load(struct store *st)
{
    struct err e = {0};
    struct infer *f;
    struct infer_opts io = {
        .st = st, .be = be, .spine_budget = UINT64_MAX, .prefetch = INFER_PREFETCH_OFF};
    store_set_admit(st, infer_admit, (void *)(uintptr_t)store_model(st));
    ok(infer_open(&io, &f, &e));
    return f;
}

static int run(struct store *st, struct telling *t, char receipt[2 * SHA256_SIZE + 1],
               struct err *e)
{
    struct infer *f = load(st);
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = N_PROMPT,
                              .max_new = N_NEW,
                              .sample = {.top_p = 1},
                              .on_token = on_token,
                              .on_again = again,
                              .ctx = t};
    struct generate_result res;
    int r = generate(f, store_model(st), &g, &res, e);
    if (!r) {
        assert_int_equal(res.n, N_NEW);
        assert_int_equal(t->told, N_NEW);
        assert_memory_equal(t->ids, res.ids, sizeof t->ids);
        assert_int_equal(res.again, t->again);
    }
    receipt_hex(&res.receipt, receipt);
    generate_result_free(&res);
    infer_close(f);
    return r;
}

/* ---- the household ---- */

static int setup(void **state)
{
    struct kern_cpu_opts ko = {.threads = 2};
    struct telling t = {0};
    struct err e = {0};
    (void)state;
    ok(kern_cpu_open(&ko, &be));
    origin = kit_origin(url);
    kit_keeper(&a);
    a.o.store.mem = infer_store_mem(be);
    kit_open(&a, url, NULL);
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        prompt[i] = 11 + i * 37 % 2000;
    }
    ok(run(a.st, &t, right, &e));
    memcpy(right_ids, t.ids, sizeof right_ids);
    prompt[BOUND] ^= 1;
    t.told = 0;
    ok(run(a.st, &t, right2, &e));
    memcpy(right_other, t.ids, sizeof right_other);
    prompt[BOUND] ^= 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kit_end(&a);
    demo_server_stop(origin);
    be->close(be);
    return 0;
}

/* From a member, however late it is: in the background the origin is not asked for what one has. */
static void take(uint32_t id)
{
    struct err e = {0};
    struct store_view v;
    ok(store_get(b.st, id, STORE_BACKGROUND, 0, &v, &e));
    store_release(b.st, &v);
}

/* B has all experts by the word of both; all are false. */
static void begin(void)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_TRULY}; /* of what they hold */
    kit_member(&b, &a);
    bad_start(&ev, &a, &a, &o, swaps);
    bad_start(&ev2, &a, &a, &o, swaps);
    b.o.store.mem = infer_store_mem(be);
    b.o.audit_ms = 3600000; /* by hand */
    kit_open(&b, url, NULL);
    meet(&b, evil_port(ev.e));
    meet(&b, evil_port(ev2.e));
    until(peer(&b, &ev.id, "objects") > 0 && peer(&b, &ev2.id, "objects") > 0);
    until(word(&b, &ev.id, "objects") > 0 && word(&b, &ev2.id, "objects") > 0);
    for (uint32_t id = 0; id < kit_count(&b); id++) {
        if (model_object(b.m, id)->kind == MODEL_EXPERT) {
            take(id);
        }
    }
    assert_int_equal(kit_status(&b, "fetch.samples.compared"), 0);
    assert_int_equal(kit_status(&b, "fetch.samples.pieces"), 0);
    assert_true(kit_status(&b, "basis.two_members.objects") > 100);
}

static void end(void)
{
    struct telling t = {0};
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    /* whatever came of it: from now on the answer is right, and nobody honest is blamed */
    ok(run(b.st, &t, receipt, &e));
    assert_string_equal(receipt, right);
    assert_int_equal(t.again, 0);
    assert_true(word(&b, mesh_id(node_mesh(a.n)), "void") <= 0);
    assert_int_equal(word(&b, &ev.id, "alone"), 0);
    assert_int_equal(peer(&b, &ev.id, "bans"), 0); /* its word is void; its bytes are compared */
    kit_end(&b);
    bad_stop(&ev);
    bad_stop(&ev2);
}

/* Nothing has been seen: the same request gives the right answer. */
static void test_run(void **state)
{
    struct telling t = {.forgets = true};
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    (void)state;
    begin();
    t.k = &b;
    ok(run(b.st, &t, receipt, &e));
    assert_string_equal(receipt, right);
    assert_memory_equal(t.ids, right_ids, sizeof right_ids);
    assert_true(t.again >= 1);
    assert_non_null(strstr(t.why, ev.who));
    end();
}

/* The first tokens have been seen: they are those of the right answer, or it is said whose word it
 * was. */
static void test_run_seen(void **state)
{
    struct telling t = {0};
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    (void)state;
    begin();
    t.k = &b;
    int r = run(b.st, &t, receipt, &e);
    assert_true(t.again >= 1);
    if (memcmp(t.ids, right_ids, TELL * sizeof t.ids[0]) == 0) {
        assert_int_equal(r, 0);
        assert_string_equal(receipt, right);
    } else {
        assert_int_equal(r, ERR_DIGEST);
        assert_int_equal(t.told, TELL);
        assert_non_null(strstr(e.msg, ev.who));
    }
    end();
}

/* What it rests on is told; what rests on less than is asked for is refused by name. */
static void test_basis(void **state)
{
    struct telling t = {0};
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    struct store_since since;
    struct store_rest r;
    struct store_view v;
    uint32_t one = model_expert_id(a.m, 2, 3);
    (void)state;
    store_since(a.st, &since);
    ok(run(a.st, &t, receipt, &e));
    store_rest(a.st, &since, &r);
    assert_int_equal(r.weakest, STORE_OWN);
    assert_true(r.objects[STORE_OWN] > 100);
    store_set_trust(a.st, STORE_OWN);
    kit_get(&a, one);
    store_set_trust(a.st, STORE_MANIFEST);
    assert_int_equal(store_get(a.st, one, STORE_DEMAND, 0, &v, &e), ERR_REFUSED);
    assert_non_null(strstr(e.msg, "expert 2/3"));
    assert_non_null(strstr(e.msg, "own download"));
    store_set_trust(a.st, STORE_UNVERIFIED);

    begin();
    store_since(b.st, &since);
    ok(store_get(b.st, one, STORE_DEMAND, 0, &v, &e));
    store_release(b.st, &v);
    store_rest(b.st, &since, &r);
    assert_int_equal(r.weakest, STORE_TWO_MEMBERS);
    assert_int_equal(r.objects[STORE_TWO_MEMBERS], 1);
    store_set_trust(b.st, STORE_TWO_MEMBERS);
    ok(store_get(b.st, one, STORE_DEMAND, 0, &v, &e));
    store_release(b.st, &v);
    store_set_trust(b.st, STORE_OWN);
    assert_int_equal(store_get(b.st, one, STORE_DEMAND, 0, &v, &e), ERR_REFUSED);
    assert_non_null(strstr(e.msg, "two members"));
    store_set_trust(b.st, STORE_UNVERIFIED);
    audit(&b);
    end();
}

/* ---- logits ---- */

struct some_rows {
    struct kit_node *k; /* who audits after the first rows; NULL: nobody */
    float *v;
    size_t vocab;
    uint32_t again;
    char why[600];
};

static int on_rows(void *ctx, size_t at, size_t n, const float *logits, struct err *e)
{
    struct some_rows *x = ctx;
    (void)e;
    memcpy(x->v + at * x->vocab, logits, n * x->vocab * sizeof *logits);
    if (x->k && !x->again) {
        audit(x->k);
        x->k = NULL;
    }
    return 0;
}

static void rows_again(void *ctx, const char *why)
{
    struct some_rows *x = ctx;
    x->again++;
    snprintf(x->why, sizeof x->why, "%s", why);
}

static void rows_of(struct kit_node *k, struct some_rows *x, struct kit_node *audits)
{
    struct infer *f = load(k->st);
    struct err e = {0};
    x->vocab = model_config(k->m)->vocab;
    x->k = audits;
    x->v = calloc(N_PROMPT * x->vocab, sizeof *x->v);
    assert_non_null(x->v);
    struct logits_opts o = {
        .ids = prompt, .n = N_PROMPT, .chunk = 5, .rows = on_rows, .again = rows_again, .ctx = x};
    struct logits_result res;
    ok(logits_all(f, k->m, &o, &res, &e));
    assert_int_equal(res.again, x->again);
    infer_close(f);
}

/* All rows come once more, and are right. */
static void test_logits(void **state)
{
    struct some_rows want = {0}, got = {0};
    (void)state;
    rows_of(&a, &want, NULL);
    assert_int_equal(want.again, 0);
    begin();
    rows_of(&b, &got, &b);
    assert_true(got.again >= 1);
    assert_non_null(strstr(got.why, ev.who));
    assert_memory_equal(got.v, want.v, N_PROMPT * want.vocab * sizeof *want.v);
    free(want.v);
    free(got.v);
    end();
}

/* ---- the engine ---- */

struct job {
    struct telling t;
    struct engine_end end;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool over;
};

static int job_token(void *ctx, const struct engine_token *tok)
{
    return told(&((struct job *)ctx)->t, tok->id);
}

static bool job_again(void *ctx, const char *why)
{
    return again(&((struct job *)ctx)->t, why);
}

static void job_end(void *ctx, const struct engine_end *end)
{
    struct job *j = ctx;
    pthread_mutex_lock(&j->mu);
    j->end = *end;
    j->over = true;
    pthread_cond_signal(&j->cond);
    pthread_mutex_unlock(&j->mu);
}

static void ask(struct engine *g, struct job *j)
{
    static const uint32_t bounds[] = {BOUND};
    struct engine_job *job;
    struct err e = {0};
    struct engine_ask x = {
        .prompt = prompt,
        .n_prompt = N_PROMPT,
        .bounds = bounds,
        .n_bounds = 1,
        .max_new = N_NEW,
        .sampling = {.base = {.top_p = 1}},
        .hooks = {.ctx = j, .token = job_token, .again = job_again, .end = job_end}};
    pthread_mutex_init(&j->mu, NULL);
    pthread_cond_init(&j->cond, NULL);
    ok(engine_submit(g, &x, &job, NULL, &e));
    pthread_mutex_lock(&j->mu);
    while (!j->over) {
        pthread_cond_wait(&j->cond, &j->mu);
    }
    pthread_mutex_unlock(&j->mu);
    engine_release(job);
}

/* In the engine, where the state of the prompt's beginning was kept: the next request that begins
 * alike is not given it. */
static void test_engine(void **state)
{
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    (void)state;
    begin();
    struct infer *f = load(b.st);
    struct engine_opts o = {.f = f, .m = b.m, .keep_ram = (uint64_t)1 << 30};
    struct engine *g;
    struct job j = {.t = {.forgets = true, .k = &b}}, next = {.t = {.forgets = true}};
    ok(engine_open(&o, &g, &e));
    ask(g, &j);
    assert_int_equal(j.end.reason, ENGINE_LENGTH);
    receipt_hex(&j.end.receipt, receipt);
    assert_string_equal(receipt, right);
    assert_true(j.t.again >= 1);
    assert_int_equal(j.end.again, j.t.again);
    assert_memory_equal(j.t.ids, right_ids, sizeof right_ids);
    prompt[BOUND] ^= 1;
    ask(g, &next);
    prompt[BOUND] ^= 1;
    receipt_hex(&next.end.receipt, receipt);
    assert_int_equal(next.end.reused, BOUND); /* the second attempt's */
    assert_string_equal(receipt, right2);
    assert_memory_equal(next.t.ids, right_other, sizeof right_other);
    assert_int_equal(next.t.again, 0);
    engine_close(g);
    infer_close(f);
    end();
}

/* Streamed: as test_run_seen. */
static void test_engine_seen(void **state)
{
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    (void)state;
    begin();
    struct infer *f = load(b.st);
    struct engine_opts o = {.f = f, .m = b.m};
    struct engine *g;
    struct job j = {.t = {.k = &b}};
    ok(engine_open(&o, &g, &e));
    ask(g, &j);
    receipt_hex(&j.end.receipt, receipt);
    if (memcmp(j.t.ids, right_ids, TELL * sizeof right_ids[0]) == 0) {
        assert_int_equal(j.end.reason, ENGINE_LENGTH);
        assert_string_equal(receipt, right);
    } else {
        assert_int_equal(j.end.reason, ENGINE_ERROR);
        assert_int_equal(j.end.err.code, ERR_DIGEST);
        assert_non_null(strstr(j.end.err.msg, ev.who));
        assert_int_equal(j.t.told, TELL);
    }
    engine_close(g);
    infer_close(f);
    end();
}

/* ---- a second process on the home ---- */

static struct kit_node second;
static uint64_t second_backs;

static bool second_knows(void)
{
    return store_backs(second.st) > second_backs;
}

static void test_guest(void **state)
{
    struct telling t = {.forgets = true, .seen = second_knows};
    char receipt[2 * SHA256_SIZE + 1];
    struct err e = {0};
    (void)state;
    begin();
    kit_second(&second, &b);
    second.o.store.mem = infer_store_mem(be);
    kit_open(&second, url, NULL);
    second_backs = store_backs(second.st);
    t.k = &b; /* the owner audits, the guest hears of it */
    ok(run(second.st, &t, receipt, &e));
    assert_string_equal(receipt, right);
    assert_true(t.again >= 1);
    assert_non_null(strstr(t.why, ev.who));
    kit_end(&second);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),    cmocka_unit_test(test_run_seen),
        cmocka_unit_test(test_engine), cmocka_unit_test(test_engine_seen),
        cmocka_unit_test(test_guest),  cmocka_unit_test(test_basis),
        cmocka_unit_test(test_logits),
    };
    cmocka_set_test_filter(getenv("LIED_ONLY"));
    return cmocka_run_group_tests_name("lied_run", tests, setup, teardown);
}
