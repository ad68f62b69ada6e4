/* SPDX-License-Identifier: MIT
 * t_config.c: config.json: what is read, and every refusal with its sentence. Changed copies of the
 * released file. */
#include "node/model/config.h"
#include "proto/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG SHOAL_TEST_DIR "/model/data/k3/config.json"

static json_t *released(void)
{
    json_t *j = json_load_file(CONFIG, 0, NULL);
    assert_non_null(j);
    return j;
}

/* Set (value as JSON) or drop (NULL) the member at a dotted path. */
static void edit(json_t *j, const char *path, const char *value)
{
    char key[64];
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        j = json_object_get(j, key);
        assert_non_null(j);
        path = dot + 1;
    }
    if (value) {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        json_object_set_new(j, path, v);
    } else {
        assert_int_equal(json_object_del(j, path), 0);
    }
}

static int parse(const json_t *j, struct model_config *c, struct err *e)
{
    char *t = json_dumps(j, 0);
    assert_non_null(t);
    int r = model_config_parse(t, strlen(t), c, e);
    r = r ? r : model_config_finish(c, e);
    free(t);
    return r;
}

#define T "text_config."
#define L "text_config.linear_attn_config."
#define Q "text_config.quantization_config."
#define W Q "config_groups.group_0.weights."

static const struct {
    const char *path, *value; /* NULL: dropped */
    int code;
    const char *says[3]; /* besides "config.json" */
} refusals[] = {
    {"architectures", "[\"LlamaForCausalLM\"]", ERR_UNSUPPORTED, {"LlamaForCausalLM"}},
    {"architectures", "\"KimiK3ForConditionalGeneration\"", ERR_UNSUPPORTED, {"architectures"}},
    {"architectures", "[]", ERR_UNSUPPORTED, {"architectures"}},
    {"architectures", NULL, ERR_UNSUPPORTED, {"missing"}},
    {"model_type", "\"deepseek_v3\"", ERR_UNSUPPORTED, {"deepseek_v3"}},
    {"model_type", NULL, ERR_UNSUPPORTED, {"model_type", "missing"}},
    {"text_config", NULL, ERR_FORMAT, {"text_config", "missing"}},
    {"text_config", "[1]", ERR_FORMAT, {"text_config", "[1]"}},
    {T "model_type", "\"qwen3_moe\"", ERR_UNSUPPORTED, {"text_config.model_type", "qwen3_moe"}},
    {T "linear_attn_config", "null", ERR_FORMAT, {"linear_attn_config", "null"}},
    {"tie_word_embeddings", "true", ERR_UNSUPPORTED, {"tie_word_embeddings", "true"}},
    {T "tie_word_embeddings", "true", ERR_UNSUPPORTED, {"tie_word_embeddings", "true"}},
    {T "hidden_act", "\"silu\"", ERR_UNSUPPORTED, {"hidden_act", "silu", "situ"}},
    {T "mla_use_nope", "false", ERR_UNSUPPORTED, {"mla_use_nope", "false"}},
    {T "mla_use_nope", NULL, ERR_UNSUPPORTED, {"mla_use_nope", "missing"}},
    {T "mla_use_output_gate", "false", ERR_UNSUPPORTED, {"mla_use_output_gate", "false"}},
    {T "latent_moe_use_norm", "false", ERR_UNSUPPORTED, {"latent_moe_use_norm", "false"}},
    {T "moe_router_activation_func", "\"softmax\"", ERR_UNSUPPORTED, {"softmax", "sigmoid"}},
    {T "topk_method", "\"greedy\"", ERR_UNSUPPORTED, {"topk_method", "greedy"}},
    {T "num_expert_group", "8", ERR_UNSUPPORTED, {"num_expert_group", "8"}},
    {T "topk_group", "4", ERR_UNSUPPORTED, {"topk_group", "4"}},
    {T "moe_layer_freq", "2", ERR_UNSUPPORTED, {"moe_layer_freq", "2"}},
    {T "num_nextn_predict_layers", "1", ERR_UNSUPPORTED, {"num_nextn_predict_layers", "1"}},
    {T "attention_bias", "true", ERR_UNSUPPORTED, {"attention_bias", "true"}},
    {L "use_full_rank_gate", "false", ERR_UNSUPPORTED, {"use_full_rank_gate", "false"}},
    {T "num_key_value_heads", "8", ERR_UNSUPPORTED, {"num_key_value_heads", "8", "96"}},
    {T "num_key_value_heads", NULL, ERR_UNSUPPORTED, {"num_key_value_heads", "missing"}},
    {T "moe_renormalize", "1", ERR_FORMAT, {"moe_renormalize", "boolean"}},
    {T "hidden_size", "0", ERR_FORMAT, {"text_config.hidden_size", "0", "1 to 65536"}},
    {T "hidden_size", "-7168", ERR_FORMAT, {"hidden_size", "-7168"}},
    {T "hidden_size", "4294974464", ERR_FORMAT, {"hidden_size", "4294974464"}},
    {T "hidden_size", "7168.0", ERR_FORMAT, {"hidden_size", "integer"}},
    {T "hidden_size", "\"7168\"", ERR_FORMAT, {"hidden_size", "integer"}},
    {T "hidden_size", "true", ERR_FORMAT, {"hidden_size", "integer"}},
    {T "hidden_size", NULL, ERR_FORMAT, {"hidden_size", "missing"}},
    {T "num_hidden_layers", "94", ERR_FORMAT, {"layer 94", "neither"}},
    {T "num_hidden_layers", "92", ERR_FORMAT, {"full_attn_layers", "93", "1 to 92"}},
    {T "num_hidden_layers", "100000", ERR_FORMAT, {"num_hidden_layers"}},
    {T "q_lora_rank", "null", ERR_FORMAT, {"q_lora_rank", "null"}},
    {T "num_experts", "65537", ERR_FORMAT, {"num_experts"}},
    {T "num_experts", "60000", ERR_LIMIT, {"60000", "experts"}},
    {T "num_experts_per_token", "897", ERR_FORMAT, {"num_experts_per_token", "897", "896"}},
    {T "num_experts_per_token", "0", ERR_FORMAT, {"num_experts_per_token"}},
    {T "num_shared_experts", "0", ERR_FORMAT, {"num_shared_experts"}},
    {T "moe_intermediate_size", "3080", ERR_FORMAT, {"moe_intermediate_size", "3080", "32"}},
    {T "routed_expert_hidden_size", "3600", ERR_FORMAT, {"routed_expert_hidden_size", "32"}},
    {T "first_k_dense_replace", "94", ERR_FORMAT, {"first_k_dense_replace", "94"}},
    {T "attn_res_block_size", "0", ERR_FORMAT, {"attn_res_block_size"}},
    {T "rms_norm_eps", "0", ERR_FORMAT, {"rms_norm_eps"}},
    {T "rms_norm_eps", "-1e-5", ERR_FORMAT, {"rms_norm_eps"}},
    {T "rms_norm_eps", "\"1e-5\"", ERR_FORMAT, {"rms_norm_eps"}},
    {T "routed_scaling_factor", "1e300", ERR_FORMAT, {"routed_scaling_factor"}},
    {T "activation_situ_beta", "0.0", ERR_FORMAT, {"activation_situ_beta"}},
    {T "activation_situ_linear_beta", NULL, ERR_FORMAT, {"activation_situ_linear_beta", "missing"}},
    {L "gate_lower_bound", "5.0", ERR_FORMAT, {"gate_lower_bound"}},
    {L "gate_lower_bound", "-100", ERR_FORMAT, {"gate_lower_bound"}},
    {L "short_conv_kernel_size", "17", ERR_FORMAT, {"short_conv_kernel_size"}},
    {L "head_dim", "0", ERR_FORMAT, {"head_dim"}},
    {L "num_heads", "5000", ERR_FORMAT, {"num_heads"}},
    {L "kda_layers", "[1,2]", ERR_FORMAT, {"layer 3", "neither"}},
    {L "kda_layers", "{}", ERR_FORMAT, {"kda_layers", "list"}},
    {L "kda_layers", "[0]", ERR_FORMAT, {"kda_layers", "0", "from 1"}},
    {L "kda_layers", "[1.5]", ERR_FORMAT, {"kda_layers", "1.5"}},
    {L "kda_layers", "[1,1]", ERR_FORMAT, {"layer 1 twice"}},
    {L "full_attn_layers", "[1]", ERR_FORMAT, {"layer 1 twice"}},
    {L "full_attn_layers", "[94]", ERR_FORMAT, {"full_attn_layers", "94"}},
    {L "full_attn_layers", NULL, ERR_FORMAT, {"full_attn_layers", "missing"}},
    {"text_config.quantization_config", NULL, ERR_FORMAT, {"quantization_config", "missing"}},
    {Q "quant_method", "\"gptq\"", ERR_UNSUPPORTED, {"quant_method", "gptq"}},
    {Q "format", "\"nvfp4-pack-quantized\"", ERR_UNSUPPORTED, {"format", "nvfp4"}},
    {Q "config_groups", "{}", ERR_FORMAT, {"config_groups", "empty"}},
    {Q "config_groups", "[]", ERR_FORMAT, {"config_groups"}},
    {Q "config_groups.group_0.input_activations",
     "{\"num_bits\":8}",
     ERR_UNSUPPORTED,
     {"input_activations"}},
    {Q "config_groups.group_0.weights", "null", ERR_FORMAT, {"group_0.weights", "null"}},
    {W "group_size", "16", ERR_UNSUPPORTED, {"weights.group_size", "16", "32"}},
    {W "num_bits", "8", ERR_UNSUPPORTED, {"num_bits", "8"}},
    {W "type", "\"int\"", ERR_UNSUPPORTED, {"type", "int"}},
    {W "symmetric", "false", ERR_UNSUPPORTED, {"symmetric", "false"}},
    {"eos_token_id", "[1,2]", ERR_FORMAT, {"eos_token_id", "[1,2]"}},
    {"eos_token_id", "163840", ERR_FORMAT, {"eos_token_id", "163840", "vocab_size"}},
    {"bos_token_id", "-1", ERR_FORMAT, {"bos_token_id", "-1"}},
    {"pad_token_id", "4294967296", ERR_FORMAT, {"pad_token_id"}},
};

static void t_refusals(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        json_t *j = released();
        edit(j, refusals[i].path, refusals[i].value);
        struct model_config c;
        struct err e = {0};
        int r = parse(j, &c, &e);
        if (r == 0) {
            fail_msg("accepted: %s = %s", refusals[i].path,
                     refusals[i].value ? refusals[i].value : "missing");
        }
        if (e.code != refusals[i].code || strncmp(e.msg, "config.json: ", 13) != 0) {
            fail_msg("%s: code %d: %s", refusals[i].path, e.code, e.msg);
        }
        for (int k = 0; k < 3 && refusals[i].says[k]; k++) {
            if (!strstr(e.msg, refusals[i].says[k])) {
                fail_msg("%s: no \"%s\" in: %s", refusals[i].path, refusals[i].says[k], e.msg);
            }
        }
        if (c.attn) { /* model_config_finish refused a configuration that had been parsed */
            model_config_free(&c);
        }
        json_decref(j);
    }
}

static void t_allowed(void **state)
{
    static const struct {
        const char *path, *value;
    } ok[] = {
        {T "hidden_size", "7167"},         {T "topk_method", NULL},
        {T "num_expert_group", NULL},      {T "tie_word_embeddings", NULL},
        {"tie_word_embeddings", NULL},     {T "num_nextn_predict_layers", NULL},
        {"vision_config", NULL},           {"bos_token_id", "null"},
        {T "rms_norm_eps", "1"},           {T "first_k_dense_replace", "93"},
        {T "first_k_dense_replace", "0"},  {L "gate_lower_bound", "-5"},
        {T "something_new", "[{}]"},       {T "moe_renormalize", "false"},
        {L "short_conv_kernel_size", "1"},
    };
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++) {
        json_t *j = released();
        edit(j, ok[i].path, ok[i].value);
        struct model_config c;
        struct err e = {0};
        if (parse(j, &c, &e)) {
            fail_msg("%s", e.msg);
        }
        model_config_free(&c);
        json_decref(j);
    }
}

/* The text itself: cut anywhere, duplicate keys, numbers that are none, not an object. */
static void t_text(void **state)
{
    struct buf b;
    struct err e = {0};
    struct model_config c;
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read_all(CONFIG, &b, &e), 0);
    for (size_t n = 0; n + 2 < b.n; n += n < 300 ? 1 : 97) {
        char *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, b.p, n);
        assert_int_equal(model_config_parse(cut, n, &c, &e), ERR_FORMAT);
        assert_non_null(strstr(e.msg, "config.json: line "));
        free(cut);
    }
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"a\":1,\"a\":2}", "duplicate"}, {"{\"a\":NaN}", "line 1"},
        {"{\"a\":Infinity}", "line 1"},     {"[]", "not a JSON object"},
        {"{\"a\":1e999}", "line 1"},        {"{\"a\":\"\x1b[31m\"}", "control"},
        {"{\"a\":\"\xff\"}", "decode"},     {"{\"a\":99999999999999999999}", "line 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(model_config_parse(bad[i].text, strlen(bad[i].text), &c, &e), ERR_FORMAT);
        if (!strstr(e.msg, bad[i].says)) {
            fail_msg("no \"%s\" in: %s", bad[i].says, e.msg);
        }
        for (const char *p = e.msg; *p; p++) {
            assert_in_range((unsigned char)*p, 0x20, 0x7e); /* nothing that a terminal obeys */
        }
    }
    buf_free(&b);
}

static void t_generation(void **state)
{
    struct model_config c = {.vocab = 100, .eos = 7, .bos = MODEL_NONE, .pad = MODEL_NONE};
    struct err e = {0};
    static const struct {
        const char *text;
        int code;
        uint32_t eos;
    } g[] = {
        {"{}", 0, 7},
        {"{\"eos_token_id\":null}", 0, 7},
        {"{\"eos_token_id\":12}", 0, 12},
        {"{\"eos_token_id\":[13]}", 0, 13},
        {"{\"eos_token_id\":[1,2]}", ERR_FORMAT, 13},
        {"{\"eos_token_id\":100}", ERR_FORMAT, 13},
        {"{\"eos_token_id\":-1}", ERR_FORMAT, 13},
        {"{\"eos_token_id\":\"x\"}", ERR_FORMAT, 13},
        {"{\"eos_token_id\":", ERR_FORMAT, 13},
    };
    for (size_t i = 0; i < sizeof g / sizeof *g; i++) {
        assert_int_equal(model_config_generation(g[i].text, strlen(g[i].text), &c, &e), g[i].code);
        assert_int_equal(c.eos, g[i].eos);
        if (g[i].code) {
            assert_int_equal(strncmp(e.msg, "generation_config.json: ", 24), 0);
        }
    }
    assert_int_equal(model_config_finish(&c, &e), 0);
    c.eos = MODEL_NONE;
    assert_int_equal(model_config_finish(&c, &e), ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_refusals),
        cmocka_unit_test(t_allowed),
        cmocka_unit_test(t_text),
        cmocka_unit_test(t_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
