/* SPDX-License-Identifier: MIT
 * t_reference.c: logits and greedy ids against independent references: the float64 numpy forward
 * pass (tiny checkpoints) and the published modelling code (demo model). Tolerances are those
 * written with the fixtures. */
#include "rig.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint32_t *ids_of(const json_t *a, size_t *n)
{
    *n = json_array_size(a);
    uint32_t *v = calloc(*n ? *n : 1, sizeof *v);
    for (size_t i = 0; i < *n; i++) {
        v[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    }
    return v;
}

struct worst {
    double max_abs, rms_rel;
    size_t top1_wrong;
};

/* got, want [rows][vocab]: the figures of the fixture's tolerance. rms_rel = rms(error) /
 * rms(want). */
static struct worst compare(const float *got, const float *want, size_t rows, size_t vocab)
{
    struct worst w = {0, 0, 0};
    double err2 = 0, ref2 = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < vocab; i++) {
            double d = fabs((double)got[r * vocab + i] - (double)want[r * vocab + i]);
            w.max_abs = d > w.max_abs || d != d ? d : w.max_abs;
            err2 += d * d;
            ref2 += (double)want[r * vocab + i] * (double)want[r * vocab + i];
        }
        w.top1_wrong += sample_argmax(got + r * vocab, (uint32_t)vocab) !=
                        sample_argmax(want + r * vocab, (uint32_t)vocab);
    }
    w.rms_rel = sqrt(err2 / ref2);
    return w;
}

static void prompt_of_fixture(struct rig *r, const json_t *p, const char *dir, double max_abs,
                              double rms_rel)
{
    size_t np, ng, nref;
    uint32_t *prompt = ids_of(json_object_get(p, "prompt"), &np);
    uint32_t *greedy = ids_of(json_object_get(p, "greedy"), &ng);
    uint32_t V = infer_config(r->f)->vocab;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(p, "logits")));
    float *want = rig_floats(path, &nref);
    assert_int_equal(nref, (np + ng) * V);

    struct err e = {0};
    struct infer_state *st;
    assert_int_equal(infer_state_new(r->f, &st, &e), 0);
    float *got = calloc((np + ng) * V, sizeof *got);
    struct infer_row *rows = calloc(np, sizeof *rows);
    for (size_t i = 0; i < np; i++) {
        rows[i] = (struct infer_row){st, prompt[i], true};
    }
    assert_int_equal(infer_forward(r->f, rows, np, got, &e), 0);
    for (size_t i = 0; i < ng; i++) {
        uint32_t id = sample_argmax(got + (np - 1 + i) * V, V);
        assert_int_equal(id, greedy[i]);
        struct infer_row row = {st, id, true};
        assert_int_equal(infer_forward(r->f, &row, 1, got + (np + i) * V, &e), 0);
    }
    struct worst w = compare(got, want, np + ng, V);
    print_message("  %zu positions: max abs error %.2e (allowed %.0e), rms rel %.2e (%.0e)\n",
                  np + ng, w.max_abs, max_abs, w.rms_rel, rms_rel);
    assert_true(w.max_abs <= max_abs);
    assert_true(w.rms_rel <= rms_rel);
    assert_int_equal(w.top1_wrong, 0);
    infer_state_free(st);
    free(rows);
    free(got);
    free(want);
    free(prompt);
    free(greedy);
}

static void fixture(const char *name)
{
    static const char dir[] = SHOAL_TEST_DIR "/fixtures/k3";
    char path[512];
    json_error_t je;
    snprintf(path, sizeof path, "%s/%s.json", dir, name);
    json_t *j = json_load_file(path, 0, &je);
    if (!j) {
        fail_msg("%s: %s", path, je.text);
    }
    json_t *tol = json_object_get(json_object_get(j, "tolerance"), "float32_engine");
    double max_abs = json_number_value(json_object_get(tol, "max_abs"));
    double rms_rel = json_number_value(json_object_get(tol, "rms_rel"));
    assert_true(max_abs > 0 && rms_rel > 0);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = path};
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(j, "prompts"), i, p)
    {
        prompt_of_fixture(&r, p, dir, max_abs, rms_rel);
    }
    assert_true(i >= 3);
    rig_close(&r);
    json_decref(j);
}

static void tiny_a(void **s)
{
    fixture("tiny_a");
}

static void tiny_c(void **s)
{
    fixture("tiny_c");
}

static void demo(void **s)
{
    static const char dir[] = SHOAL_TEST_DIR "/fixtures/demo";
    json_error_t je;
    json_t *j = json_load_file(SHOAL_TEST_DIR "/fixtures/demo/expected.json", 0, &je);
    if (!j) {
        fail_msg("expected.json: %s", je.text);
    }
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = SHOAL_SOURCE_DIR "/node/demo/model"};
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t V = infer_config(r.f)->vocab;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(j, "cases"), i, c)
    {
        size_t np, ng, nref;
        uint32_t *prompt = ids_of(json_object_get(c, "prompt_ids"), &np);
        uint32_t *greedy = ids_of(json_object_get(c, "greedy_ids"), &ng);
        struct generate_opts g = {
            .prompt = prompt, .n_prompt = np, .max_new = (uint32_t)ng, .sample = {.top_p = 1}};
        struct generate_result out;
        if (generate(r.f, r.m, &g, &out, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(out.n, ng);
        assert_memory_equal(out.ids, greedy, ng * sizeof *greedy);
        generate_result_free(&out);

        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir,
                 json_string_value(json_object_get(c, "logits_file")));
        float *want = rig_floats(path, &nref), *got = calloc(V, sizeof *got);
        assert_int_equal(nref, V);
        struct infer_state *st;
        assert_int_equal(infer_state_new(r.f, &st, &e), 0);
        struct infer_row *rows = calloc(np, sizeof *rows);
        for (size_t k = 0; k < np; k++) {
            rows[k] = (struct infer_row){st, prompt[k], k + 1 == np};
        }
        assert_int_equal(infer_forward(r.f, rows, np, got, &e), 0);
        struct worst w = compare(got, want, 1, V);
        print_message("  %s: max abs error %.2e\n", json_string_value(json_object_get(c, "name")),
                      w.max_abs);
        /* The reference itself differs by 4.5e-5 between two correct fp32 programs. */
        assert_true(w.max_abs <= 5e-4);
        infer_state_free(st);
        free(rows);
        free(want);
        free(got);
        free(prompt);
        free(greedy);
    }
    assert_int_equal(i, 5);
    rig_close(&r);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_a),
        cmocka_unit_test(tiny_c),
        cmocka_unit_test(demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
