/* SPDX-License-Identifier: MIT
 * t_bad.c: every kind of malformed index, header and shard: refused with a sentence that names the
 * file and the reason. Each case spoils a copy of a tiny checkpoint. */
#include "model/edit.h"
#include "node/model/model.h"
#include "proto/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TINY SHOAL_TEST_DIR "/fixtures/k3/tiny_c"
#define S1 "model-00001-of-000006.safetensors"
#define S2 "model-00002-of-000006.safetensors"
#define S3 "model-00003-of-000006.safetensors"
#define S6 "model-00006-of-000006.safetensors"
#define INDEX "model.safetensors.index.json"
#define L0 "language_model.model.layers.0."
#define X1 "language_model.model.layers.1.block_sparse_moe.experts."
#define UP L0 "mlp.up_proj.weight"

static int open_dir(const char *dir, struct model **m, struct err *e)
{
    struct model_source src;
    *e = (struct err){0};
    int r = model_folder_open(dir, &src, e);
    if (!r) {
        r = model_open(&src, m, e);
        model_folder_close(&src);
    }
    return r;
}

/* The folder is refused, the sentence begins with the file's name and has all of says[]. */
static void refused(const struct edit *d, const char *what, const char *file,
                    const char *const says[3])
{
    struct model *m;
    struct err e;
    if (open_dir(d->dir, &m, &e) == 0) {
        model_close(m);
        fail_msg("accepted: %s", what);
    }
    if (strncmp(e.msg, file, strlen(file)) != 0 || e.msg[strlen(file)] != ':') {
        fail_msg("%s: does not name %s: %s", what, file, e.msg);
    }
    for (int i = 0; i < 3 && says[i]; i++) {
        if (!strstr(e.msg, says[i])) {
            fail_msg("%s: no \"%s\" in: %s", what, says[i], e.msg);
        }
    }
    for (const char *p = e.msg; *p; p++) {
        assert_in_range((unsigned char)*p, 0x20, 0x7e);
    }
}

struct text_case {
    const char *file; /* edited, and named in the sentence */
    const char *from, *to;
    const char *says[3];
};

static const struct text_case header_cases[] = {
    {S1,
     UP "\":{\"dtype\":\"BF16\"",
     UP "\":{\"dtype\":\"F16\"",
     {UP, "dtype F16", "must be BF16"}},
    {S1, UP "\":{\"dtype\":\"BF16\"", UP "\":{\"dtype\":\"\\u001b[1m\"", {UP, "dtype ?[1m"}},
    {S2, "\"dtype\":\"U8\"", "\"dtype\":\"I8\"", {X1 "0.w1.weight_packed", "dtype I8", "U8"}},
    {S1, "A_log\":{\"dtype\":\"F32\"", "A_log\":{\"dtype\":\"BF16\"", {"A_log", "must be F32"}},
    {S1,
     "[256,128],\"data_offsets\":[0,",
     "[128,256],\"data_offsets\":[0,",
     {UP, "[128,256]", "[256,128]"}},
    {S1,
     "[256,128],\"data_offsets\":[0,",
     "[32768],\"data_offsets\":[0,",
     {UP, "[32768]", "[256,128]"}},
    {S1, "[256,128],\"data_offsets\":[0,", "[256,1,128],\"data_offsets\":[0,", {UP, "[256,1,128]"}},
    {S1, "[256,128],\"data_offsets\":[0,", "[],\"data_offsets\":[0,", {UP, "shape []"}},
    {S1,
     "[256,128],\"data_offsets\":[0,",
     "[1,1,1,1,1,1,1,256,128],\"data_offsets\":[0,",
     {UP, "more than 8"}},
    {S1,
     "[256,128],\"data_offsets\":[0,",
     "[256.0,128],\"data_offsets\":[0,",
     {"header: byte", "fraction"}},
    {S1,
     "[256,128],\"data_offsets\":[0,",
     "[\"256\",128],\"data_offsets\":[0,",
     {"header: byte", "integer"}},
    {S1,
     "[256,128],\"data_offsets\":[0,",
     "[-256,128],\"data_offsets\":[0,",
     {"header: byte", "negative"}},
    {S2, "[96,2]", "[96,1]", {X1 "0.w1.weight_scale", "[96,1]", "[96,2]"}},
    {S2, "[64,48]", "[64,32]", {X1 "0.w2.weight_packed", "[64,32]", "[64,48]"}},
    {S1,
     "A_log\":{\"dtype\":\"F32\",\"shape\":[128]",
     "A_log\":{\"dtype\":\"F32\",\"shape\":[1]",
     {"A_log", "1 values", "2 heads"}},
    {S1,
     "A_log\":{\"dtype\":\"F32\",\"shape\":[128]",
     "A_log\":{\"dtype\":\"F32\",\"shape\":[18446744073709551615]",
     {"A_log", "heads"}},
    {S1,
     "A_log\":{\"dtype\":\"F32\",\"shape\":[128]",
     "A_log\":{\"dtype\":\"F32\",\"shape\":[64,2]",
     {"A_log", "[64,2]"}},
    {S1,
     "A_log\":{\"dtype\":\"F32\",\"shape\":[128]",
     "A_log\":{\"dtype\":\"F32\",\"shape\":[127]",
     {"A_log", "512 bytes", "say 508"}},
    {S1, "[0,65536]", "[0,65535]", {UP, "65535", "say 65536"}},
    {S1, "[0,65536]", "[65536,0]", {UP, "data_offsets"}},
    {S1, "[0,65536]", "[0,65536,65536]", {UP, "data_offsets"}},
    {S1, "[0,65536]", "[]", {UP, "data_offsets"}},
    {S1, "[0,65536]", "[0,99999999999999999999]", {"header: byte", "64 bits"}},
    {S1, "[0,65536]", "[18446744073709486080,18446744073709551615]", {UP, "2^50"}},
    {S1, "[65536,131072]", "[65535,131071]", {UP, "mlp.down_proj.weight", "overlap"}},
    {S1, "[65536,131072]", "[0,65536]", {UP, "mlp.down_proj.weight", "overlap"}},
    {S1, "[65536,131072]", "[99999999,100065535]", {"mlp.down_proj.weight", "cut short", "641782"}},
    {S1, L0 "mlp.down_proj.weight", UP, {UP, "is there twice"}},
    {S1, L0 "mlp.down_proj.weight", L0 "mlp.foo.weight", {"mlp.foo.weight", "unknown"}},
    {S1, L0 "mlp.down_proj.weight", "model.layers.0.mlp.down_proj.weight", {"unknown"}},
    {S1, L0 "mlp.down_proj.weight", "\\u001b[2J", {"?[2J", "unknown"}},
    {S1, L0 "mlp.down_proj.weight", "vision_tower.x", {"vision_tower.x", "not in the index"}},
    {S1,
     L0 "mlp.down_proj.weight",
     "language_model.model.layers.00.mlp.down_proj.weight",
     {"unknown"}},
    {S1,
     L0 "mlp_res_norm",
     "language_model.model.layers.1.mlp_res_norm",
     {"layers.1.mlp_res_norm.weight", "belongs in " S2}},
    {S1,
     "\"" L0
     "mlp_res_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[128],\"data_offsets\":[196608,196864]},",
     "",
     {L0 "mlp_res_norm.weight", "missing", "index"}},
    {S1, UP "\":{\"dtype\":\"BF16\",", UP "\":{", {UP, "no dtype"}},
    {S1, "\"shape\":[256,128],", "", {UP, "no shape"}},
    {S1, ",\"data_offsets\":[0,65536]", "", {UP, "no data_offsets"}},
    {S1, UP "\":{", UP "\":{\"dtype\":\"BF16\",", {UP, "dtype twice"}},
    {S1, UP "\":{", UP "\":{\"data_offsets\":[0,65536],", {UP, "data_offsets twice"}},
    {S1, UP "\":{\"dtype\":\"BF16\"", UP "\":{\"dtype\":16", {"header: byte", "string"}},
    {S1, UP "\":{\"dtype\":\"BF16\"", UP "\":[{\"dtype\":\"BF16\"", {"header: byte", "object"}},
    {S1, "{\"__metadata__\"", "[\"__metadata__\"", {"begin with {"}},
    {S1, "{\"__metadata__\"", " {\"__metadata__\"", {"begin with {"}},
    {S1, "{\"__metadata__\"", "{\"__metadata__\":{},\"__metadata__\"", {"__metadata__", "twice"}},
    {S1, "{\"format\":\"pt\"},", "{\"format\":\"pt\"}", {"header: byte", "comma"}},
    {S1,
     "{\"format\":\"pt\"}",
     "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]",
     {"header: byte", "deep"}},
    {S1, "{\"format\":\"pt\"}", "{\"format\":pt}", {"header: byte"}},
};

static const struct text_case index_cases[] = {
    {INDEX, L0 "mlp.down_proj.weight", UP, {UP, "listed twice"}},
    {INDEX, L0 "mlp.down_proj.weight", L0 "mlp.foo.weight", {"unknown", "mlp.foo.weight"}},
    {INDEX, L0 "mlp.down_proj.weight", "foo.weight", {"unknown", "foo.weight"}},
    {INDEX, L0 "mlp.down_proj.weight", "\\u001b[2J", {"unknown", "?[2J"}},
    {INDEX, L0 "mlp.down_proj.weight", "vision_tower.x", {L0 "mlp.down_proj.weight", "missing"}},
    {INDEX, X1 "31.w3.weight_scale", X1 "32.w3.weight_scale", {"unknown", "32"}},
    {INDEX, X1 "31.w3.weight_scale", X1 "031.w3.weight_scale", {"unknown", "031"}},
    {INDEX, X1 "31.w3.weight_scale", X1 "31.w4.weight_scale", {"unknown", "w4"}},
    {INDEX,
     X1 "31.w3.weight_scale",
     "language_model.model.layers.0.block_sparse_moe.experts.3.w1.weight_scale",
     {"unknown"}},
    {INDEX,
     X1 "31.w3.weight_scale",
     "language_model.model.layers.4294967297.mlp_res_norm.weight",
     {"unknown"}},
    {INDEX, "\"" S1 "\"", "\"../" S1 "\"", {"../" S1, "shard name"}},
    {INDEX, "\"" S1 "\"", "\"/etc/x.safetensors\"", {"/etc/x", "shard name"}},
    {INDEX, "\"" S1 "\"", "\"sub/" S1 "\"", {"shard name"}},
    {INDEX, "\"" S1 "\"", "\"a..b.safetensors\"", {"shard name"}},
    {INDEX, "\"" S1 "\"", "\"..safetensors\"", {"shard name"}},
    {INDEX, "\"" S1 "\"", "\".safetensors\"", {"shard name"}},
    {INDEX, "\"" S1 "\"", "\"x\\u000a.safetensors\"", {"shard name", "x?.safetensors"}},
    {INDEX, "\"" S1 "\"", "\"config.json\"", {"config.json", "shard name"}},
    {INDEX, "\"" S2 "\"", "\"MODEL-00001-of-000006.safetensors\"", {"upper and lower case"}},
    {INDEX, "\"" S1 "\"", "\"\"", {"shard name"}},
    {INDEX, "\"" S1 "\"", "7", {"byte", "string"}},
    {INDEX, "\"weight_map\"", "\"weight_maps\"", {"no weight_map"}},
    {INDEX, "\"metadata\"", "\"weight_map\":{},\"metadata\"", {"weight_map", "twice"}},
    {INDEX, "\"metadata\"", "\"metadata\":{},\"metadata\"", {"metadata", "twice"}},
    {INDEX, "{", "[", {"byte 0", "object"}},
    {INDEX, "\"weight_map\": {", "\"weight_map\": [", {"byte", "object"}},
    {INDEX, "\",\n", "\"\n", {"byte", "comma"}},
    {INDEX, "  }\n}", "  }\n}}", {"byte", "follows the end"}},
};

static void run(const struct text_case *c, size_t n, bool header)
{
    for (size_t i = 0; i < n; i++) {
        struct edit d;
        edit_begin(&d, TINY);
        (header ? edit_header : edit_text)(&d, c[i].file, c[i].from, c[i].to);
        refused(&d, c[i].to, c[i].file, c[i].says);
        edit_end(&d);
    }
}

static void t_header_text(void **state)
{
    run(header_cases, sizeof header_cases / sizeof *header_cases, true);
}

static void t_index_text(void **state)
{
    run(index_cases, sizeof index_cases / sizeof *index_cases, false);
}

/* The eight bytes before the header, and files that are cut, too long, empty, absent or no files.
 */
static void t_shard_bytes(void **state)
{
    struct edit d;
    struct buf b;
    static const struct {
        uint64_t hlen;
        const char *says[3];
    } lens[] = {
        {0, {"header length is 0"}},
        {1, {"header length is 1"}},
        {2785, {"header"}},
        {2, {"header"}},
        {641776, {"header length is 641776", "only 641776", "cut short"}},
        {641768, {"header: byte"}}, /* all of the file: data is no JSON */
        {100000001, {"header length is 100000001", "100000000"}},
        {UINT64_MAX, {"header length is 18446744073709551615"}},
        {UINT64_MAX - 7, {"header length"}},
        {1ull << 63, {"header length"}},
    };
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        edit_begin(&d, TINY);
        edit_read(&d, S1, &b);
        num_put_le64(b.p, lens[i].hlen);
        edit_write(&d, S1, b.p, b.n);
        refused(&d, "header length", S1, lens[i].says);
        buf_free(&b);
        edit_end(&d);
    }
    static const struct {
        size_t n;
        const char *says[3];
    } cuts[] = {
        {0, {"only 0 bytes"}},
        {7, {"only 7 bytes"}},
        {8, {"header length is 2792", "only 8", "cut short"}},
        {2799, {"header length is 2792", "only 2799", "cut short"}},
        {2800, {"q_proj.weight", "only 2800", "cut short"}},
        {641775, {"q_proj.weight", "641776", "only 641775"}},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        edit_begin(&d, TINY);
        edit_read(&d, S1, &b);
        edit_write(&d, S1, b.p, cuts[i].n);
        refused(&d, "cut shard", S1, cuts[i].says);
        buf_free(&b);
        edit_end(&d);
    }
    edit_begin(&d, TINY);
    edit_append(&d, S6, "x", 1);
    refused(&d, "a byte too many", S6, (const char *const[3]){"accounts for only"});
    edit_remove(&d, S3);
    refused(&d, "no shard 3", S3, (const char *const[3]){"No such file"});
    char path[128];
    snprintf(path, sizeof path, "%s/" S3, d.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(&d, "a folder for shard 3", S3, (const char *const[3]){"not a plain file"});
    edit_end(&d);
}

static void t_metadata_files(void **state)
{
    struct edit d;
    struct buf b;
    static const char *const needed[] = {"config.json", INDEX};
    for (int i = 0; i < 2; i++) {
        edit_begin(&d, TINY);
        edit_remove(&d, needed[i]);
        refused(&d, "no file", needed[i], (const char *const[3]){"No such file"});
        edit_write(&d, needed[i], "", 0);
        refused(&d, "empty file", needed[i], (const char *const[3]){NULL});
        edit_write(&d, needed[i], "\0\0", 2);
        refused(&d, "zeros", needed[i], (const char *const[3]){NULL});
        edit_end(&d);
    }
    edit_begin(&d, TINY);
    edit_write(&d, "generation_config.json", "{\"eos_token_id\":512}", 20);
    refused(&d, "eos", "generation_config.json", (const char *const[3]){"512", "vocab_size"});
    edit_write(&d, "generation_config.json", "{", 1);
    refused(&d, "cut json", "generation_config.json", (const char *const[3]){"line 1"});
    edit_end(&d);

    edit_begin(&d, TINY); /* the index cut at many places */
    edit_read(&d, INDEX, &b);
    for (size_t n = 0; n + 1 < b.n; n += n < 200 ? 1 : 4999) {
        edit_write(&d, INDEX, b.p, n);
        refused(&d, "cut index", INDEX, (const char *const[3]){"byte"});
    }
    buf_free(&b);
    edit_end(&d);

    edit_begin(&d, TINY); /* a config of other sizes: names the tensor whose shape is wrong */
    edit_text(&d, "config.json", "\"intermediate_size\": 256", "\"intermediate_size\": 288");
    refused(&d, "other size", S1,
            (const char *const[3]){"mlp.up_proj.weight", "[256,128]", "[288,128]"});
    edit_end(&d);
    edit_begin(&d, TINY);
    edit_text(&d, "config.json", "\"KimiK3ForConditionalGeneration\"", "\"LlamaForCausalLM\"");
    refused(&d, "other architecture", "config.json", (const char *const[3]){"LlamaForCausalLM"});
    edit_end(&d);
}

/* A tensor that the index places elsewhere, and one that is in two shards. */
static void t_wrong_shard(void **state)
{
    struct edit d;
    edit_begin(&d, TINY);
    edit_text(&d, INDEX, "mlp.up_proj.weight\": \"" S1, "mlp.up_proj.weight\": \"" S2);
    refused(&d, "index says 2", S1, (const char *const[3]){UP, "belongs in " S2});
    edit_end(&d);
    edit_begin(&d, TINY);
    edit_text(&d, INDEX, "mlp.up_proj.weight\": \"" S1, "mlp.up_proj.weight\": \"none.safetensors");
    refused(&d, "index names no shard", S1,
            (const char *const[3]){UP, "belongs in none.safetensors"});
    edit_end(&d);
    edit_begin(&d, TINY);
    edit_header(
        &d, S3, "{\"__metadata__\"",
        "{\"" UP
        "\":{\"dtype\":\"BF16\",\"shape\":[256,128],\"data_offsets\":[0,65536]},\"__metadata__\"");
    refused(&d, "in shards 1 and 3", S3, (const char *const[3]){UP, "belongs in " S1});
    edit_end(&d);
}

/* Experts: in two shards; laid out unlike the others. */
static void t_experts(void **state)
{
    struct edit d;
    char zeros[3072] = {0};
    edit_begin(&d, TINY);
    edit_text(&d, INDEX, X1 "0.w1.weight_packed\": \"" S2, X1 "0.w1.weight_packed\": \"" S3);
    edit_header(
        &d, S2,
        "\"" X1
        "0.w1.weight_packed\":{\"dtype\":\"U8\",\"shape\":[96,32],\"data_offsets\":[0,3072]},",
        "");
    edit_header(&d, S3, "{\"__metadata__\"",
                "{\"" X1 "0.w1.weight_packed\":{\"dtype\":\"U8\",\"shape\":[96,32],\"data_"
                "offsets\":[944384,947456]},\"__metadata__\"");
    edit_append(&d, S3, zeros, sizeof zeros);
    refused(&d, "expert in two shards", S2,
            (const char *const[3]){"expert 1/0", S3, "not in the shard"});
    edit_end(&d);

    edit_begin(&d, TINY); /* w1 and w3 of expert 1 change places: contiguous, but unlike expert 0 */
    edit_header(&d, S2, "[9792,12864]", "[X]");
    edit_header(&d, S2, "[16320,19392]", "[9792,12864]");
    edit_header(&d, S2, "[X]", "[16320,19392]");
    refused(&d, "other layout", S2,
            (const char *const[3]){X1 "1.w1.weight_packed", "alike", "6528"});
    edit_end(&d);

    edit_begin(&d, TINY); /* a gap inside an expert */
    edit_header(&d, S2, "\"data_offsets\":[0,3072]", "\"data_offsets\":[944384,947456]");
    edit_append(&d, S2, zeros, sizeof zeros);
    refused(&d, "spread", S2, (const char *const[3]){"expert 1/0", "contiguous", "9792"});
    edit_end(&d);
}

/* Tensors of the vision part: tolerated, but held to the rules of the format. */
static void t_vision(void **state)
{
    static const struct {
        const char *entry;
        const char *says[3];
    } bad[] = {
        {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[638976,638999]}",
         {"vision_tower.x", "23 bytes", "say 24"}},
        {"{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[638976,638977]}",
         {"vision_tower.x", "dtype F4"}},
        {"{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[638976,638976]}",
         {"vision_tower.x", "2^64"}},
        {"{\"dtype\":\"U8\",\"shape\":[24],\"data_offsets\":[638970,638994]}",
         {"vision_tower.x", "overlap"}},
        {"{\"dtype\":\"U8\",\"shape\":[25],\"data_offsets\":[638976,639001]}",
         {"vision_tower.x", "cut short"}},
    };
    char to[512];
    struct edit d;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        edit_begin(&d, TINY);
        edit_text(&d, INDEX, "\"weight_map\": {",
                  "\"weight_map\": {\"vision_tower.x\":\"" S1 "\",");
        snprintf(to, sizeof to, "{\"vision_tower.x\":%s,\"__metadata__\"", bad[i].entry);
        edit_header(&d, S1, "{\"__metadata__\"", to);
        edit_append(&d, S1, "012345678901234567890123", 24);
        refused(&d, bad[i].entry, S1, bad[i].says);
        edit_end(&d);
    }
    edit_begin(&d, TINY);
    edit_text(&d, INDEX, "\"weight_map\": {", "\"weight_map\": {\"vision_tower.x\":\"" S1 "\",");
    refused(&d, "only in the index", S1, (const char *const[3]){"vision_tower.x", "missing"});
    edit_text(&d, INDEX, "\"weight_map\": {", "\"weight_map\": {\"vision_tower.x\":\"" S1 "\",");
    refused(&d, "twice in the index", INDEX,
            (const char *const[3]){"vision_tower.x", "listed twice"});
    edit_end(&d);
    edit_begin(&d, TINY);
    edit_text(&d, INDEX, "\"weight_map\": {", "\"weight_map\": {\"mm_projector.y\":\"" S1 "\",");
    edit_header(&d, S1, "{\"__metadata__\"",
                "{\"mm_projector.y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[5,5]},"
                "\"mm_projector.y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[5,5]},\"__"
                "metadata__\"");
    refused(&d, "twice in a header", S1,
            (const char *const[3]){"mm_projector.y", "is there twice"});
    edit_end(&d);
}

/* What must not be refused: gaps, escapes in names, other order, vision tensors, no padding. */
static void t_tolerated(void **state)
{
    struct edit d;
    struct model *m;
    struct err e;
    char zeros[64] = {0};
    edit_begin(&d, TINY);
    edit_text(&d, INDEX, "\"weight_map\": {",
              "\"weight_map\": {\"mm_projector.y\":\"" S1 "\",\"vision_tower.\\u0078\":\"" S1
              "\",");
    edit_header(&d, S1, "{\"__metadata__\"",
                "{\"vision_tower.x\":{\"shape\":[3],\"extra\":[{}],\"dtype\":\"U8\",\"data_"
                "offsets\":[639000,639003]}"
                ",\"mm_projector.y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[5,5]},\"__"
                "metadata__\"");
    edit_header(&d, S1, L0 "mlp.up_proj.weight",
                "language_model\\u002emodel.layers.0.mlp.up_proj.weight");
    edit_append(&d, S1, zeros, 27); /* 24 of a gap, 3 of vision_tower.x */
    edit_text(&d, INDEX, L0 "mlp.up_proj.weight",
              "language_model.model.layers.0.mlp\\u002eup_proj.weight");
    if (open_dir(d.dir, &m, &e)) {
        fail_msg("%s", e.msg);
    }
    const struct model_object *o = model_object(m, model_spine_id(m, 0, MODEL_MLP_UP));
    assert_int_equal(o->offset, model_shard(m, 0)->header_size);
    assert_int_equal(o->size, 65536);
    assert_int_equal(model_shard(m, 0)->size, model_shard(m, 0)->header_size + 639003);
    model_close(m);
    edit_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_header_text), cmocka_unit_test(t_index_text),
        cmocka_unit_test(t_shard_bytes), cmocka_unit_test(t_metadata_files),
        cmocka_unit_test(t_wrong_shard), cmocka_unit_test(t_experts),
        cmocka_unit_test(t_vision),      cmocka_unit_test(t_tolerated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
