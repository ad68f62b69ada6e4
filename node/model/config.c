/* SPDX-License-Identifier: MIT
 * config.c: see config.h. Tables say which keys are read, with the range of each; whatever would
 * need code that this program does not have is refused by its name and value. */
#include "node/model/config.h"

#include "node/model/names.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "config.json"

enum section { TEXT, LINEAR };

struct int_field {
    const char *key;
    size_t at; /* of a uint32_t in struct model_config */
    uint32_t min, max;
    enum section in;
};

#define U(f) offsetof(struct model_config, f)
static const struct int_field int_fields[] = {
    {"num_hidden_layers", U(n_layers), 1, MODEL_MAX_LAYERS, TEXT},
    {"hidden_size", U(hidden), 1, 1u << 16, TEXT},
    {"vocab_size", U(vocab), 1, 1u << 22, TEXT},
    {"max_position_embeddings", U(max_positions), 1, 1u << 30, TEXT},
    {"num_attention_heads", U(heads), 1, 1u << 12, TEXT},
    {"q_lora_rank", U(q_rank), 1, 1u << 16, TEXT},
    {"kv_lora_rank", U(kv_rank), 1, 1u << 16, TEXT},
    {"qk_nope_head_dim", U(nope), 1, 1u << 12, TEXT},
    {"qk_rope_head_dim", U(rope), 1, 1u << 12, TEXT},
    {"v_head_dim", U(vdim), 1, 1u << 12, TEXT},
    {"intermediate_size", U(dense_inter), 1, 1u << 20, TEXT},
    {"first_k_dense_replace", U(first_dense), 0, MODEL_MAX_LAYERS, TEXT},
    {"num_experts", U(n_experts), 1, 1u << 16, TEXT},
    {"num_experts_per_token", U(topk), 1, 1u << 10, TEXT},
    {"num_shared_experts", U(n_shared), 1, 1u << 8, TEXT},
    {"moe_intermediate_size", U(moe_inter), 32, 1u << 16, TEXT},
    {"routed_expert_hidden_size", U(latent), 32, 1u << 16, TEXT},
    {"attn_res_block_size", U(attn_res_block), 1, 1u << 16, TEXT},
    {"num_heads", U(kda_heads), 1, 1u << 12, LINEAR},
    {"head_dim", U(kda_dim), 1, 1u << 12, LINEAR},
    {"short_conv_kernel_size", U(conv), 1, 16, LINEAR},
};

struct real_field {
    const char *key;
    size_t at; /* of a float in struct model_config */
    double min, max;
    enum section in;
};

static const struct real_field real_fields[] = {
    {"rms_norm_eps", U(rms_eps), 1e-15, 1, TEXT},
    {"routed_scaling_factor", U(routed_scale), 1e-6, 1e6, TEXT},
    {"activation_situ_beta", U(situ_beta), 1e-3, 1e6, TEXT},
    {"activation_situ_linear_beta", U(situ_linear_beta), 1e-3, 1e6, TEXT},
    {"gate_lower_bound", U(gate_lower_bound), -80, -1e-6, LINEAR},
};
#undef U

/* Keys with one value that this program can run. `optional`: absent means that value. */
struct fixed_field {
    const char *key;
    const char *want; /* as compact JSON */
    bool optional;
    enum section in;
};

static const struct fixed_field fixed_fields[] = {
    {"model_type", "\"kimi_linear\"", false, TEXT},
    {"hidden_act", "\"situ\"", false, TEXT},
    {"mla_use_nope", "true", false, TEXT},
    {"mla_use_output_gate", "true", false, TEXT},
    {"latent_moe_use_norm", "true", false, TEXT},
    {"moe_router_activation_func", "\"sigmoid\"", false, TEXT},
    {"topk_method", "\"noaux_tc\"", true, TEXT},
    {"num_expert_group", "1", true, TEXT},
    {"topk_group", "1", true, TEXT},
    {"moe_layer_freq", "1", true, TEXT},
    {"num_nextn_predict_layers", "0", true, TEXT},
    {"tie_word_embeddings", "false", true, TEXT},
    {"attention_bias", "false", true, TEXT},
    {"use_full_rank_gate", "true", false, LINEAR},
};

static const char *section_name(enum section s)
{
    return s == TEXT ? "text_config" : "text_config.linear_attn_config";
}

/* A value for a sentence: compact JSON, cut, printable. */
struct shown {
    char s[80];
};

static struct shown show(const json_t *v)
{
    struct shown r;
    char *t = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    model_printable(t ? t : "missing", t ? strlen(t) : 7, r.s, sizeof r.s);
    free(t);
    return r;
}

static int get_object(const json_t *in, const char *path, const char *key, const json_t **out,
                      struct err *e)
{
    const json_t *v = json_object_get(in, key);
    if (!json_is_object(v)) {
        return err_set(e, ERR_FORMAT, "%s: %s%s is %s; it must be an object", FILE_NAME, path, key,
                       show(v).s);
    }
    *out = v;
    return 0;
}

static int get_ints(const json_t *const sec[2], struct model_config *c, struct err *e)
{
    for (size_t i = 0; i < sizeof int_fields / sizeof *int_fields; i++) {
        const struct int_field *f = &int_fields[i];
        const json_t *v = json_object_get(sec[f->in], f->key);
        json_int_t x = json_integer_value(v);
        if (!json_is_integer(v) || x < (json_int_t)f->min || x > (json_int_t)f->max) {
            return err_set(e, ERR_FORMAT, "%s: %s.%s is %s; it must be an integer from %u to %u",
                           FILE_NAME, section_name(f->in), f->key, show(v).s, f->min, f->max);
        }
        uint32_t u = (uint32_t)x;
        memcpy((char *)c + f->at, &u, sizeof u);
    }
    return 0;
}

static int get_reals(const json_t *const sec[2], struct model_config *c, struct err *e)
{
    for (size_t i = 0; i < sizeof real_fields / sizeof *real_fields; i++) {
        const struct real_field *f = &real_fields[i];
        const json_t *v = json_object_get(sec[f->in], f->key);
        double x = json_number_value(v);
        if (!json_is_number(v) || !(x >= f->min && x <= f->max)) {
            return err_set(e, ERR_FORMAT, "%s: %s.%s is %s; it must be a number from %g to %g",
                           FILE_NAME, section_name(f->in), f->key, show(v).s, f->min, f->max);
        }
        float r = (float)x;
        memcpy((char *)c + f->at, &r, sizeof r);
    }
    return 0;
}

static int refuse(const char *path, const char *key, const json_t *v, const char *want,
                  struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "%s: %s%s is %s; this program supports only %s", FILE_NAME,
                   path, key, show(v).s, want);
}

static bool is_json(const json_t *v, const char *want)
{
    char *t = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    bool same = t && strcmp(t, want) == 0;
    free(t);
    return same;
}

static int get_fixed(const json_t *const sec[2], struct err *e)
{
    for (size_t i = 0; i < sizeof fixed_fields / sizeof *fixed_fields; i++) {
        const struct fixed_field *f = &fixed_fields[i];
        const json_t *v = json_object_get(sec[f->in], f->key);
        if (v ? !is_json(v, f->want) : !f->optional) {
            char path[64];
            snprintf(path, sizeof path, "%s.", section_name(f->in));
            return refuse(path, f->key, v, f->want, e);
        }
    }
    return 0;
}

/* The two lists of 1-based layer numbers: each layer is in exactly one. */
static int get_layers(const json_t *lin, struct model_config *c, struct err *e)
{
    static const char *const keys[] = {"kda_layers", "full_attn_layers"};
    static const uint8_t kinds[] = {MODEL_KDA, MODEL_MLA};
    const char *path = section_name(LINEAR);
    c->attn = malloc(c->n_layers);
    if (!c->attn) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memset(c->attn, 0xff, c->n_layers);
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(lin, keys[k]);
        if (!json_is_array(list)) {
            return err_set(e, ERR_FORMAT, "%s: %s.%s is %s; it must be a list", FILE_NAME, path,
                           keys[k], show(list).s);
        }
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *v = json_array_get(list, i);
            json_int_t l = json_integer_value(v);
            if (!json_is_integer(v) || l < 1 || l > (json_int_t)c->n_layers) {
                return err_set(e, ERR_FORMAT,
                               "%s: %s.%s has the entry %s; layers count from 1 to %u", FILE_NAME,
                               path, keys[k], show(v).s, c->n_layers);
            }
            if (c->attn[l - 1] != 0xff) {
                return err_set(e, ERR_FORMAT, "%s: %s lists layer %d twice", FILE_NAME, path,
                               (int)l);
            }
            c->attn[l - 1] = kinds[k];
        }
    }
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (c->attn[l] == 0xff) {
            return err_set(e, ERR_FORMAT,
                           "%s: layer %u is in neither %s.kda_layers nor full_attn_layers",
                           FILE_NAME, l + 1, path);
        }
    }
    return 0;
}

/* Names and shapes of the tensors say what is quantised; this says that "quantised" means MXFP4. */
static int get_quant(const json_t *top, const json_t *text, struct err *e)
{
    static const struct {
        const char *key, *want;
    } weights[] = {{"num_bits", "4"},
                   {"type", "\"float\""},
                   {"group_size", "32"},
                   {"strategy", "\"group\""},
                   {"symmetric", "true"}};
    const char *path = "quantization_config.";
    const json_t *q = json_object_get(text, "quantization_config");
    if (!q) {
        q = json_object_get(top, "quantization_config");
    }
    if (!json_is_object(q)) {
        return err_set(e, ERR_FORMAT, "%s: quantization_config is %s; it must be an object",
                       FILE_NAME, show(q).s);
    }
    const json_t *v = json_object_get(q, "quant_method");
    if (!v || !is_json(v, "\"compressed-tensors\"")) {
        return refuse(path, "quant_method", v, "\"compressed-tensors\"", e);
    }
    v = json_object_get(q, "format");
    if (!v || !is_json(v, "\"mxfp4-pack-quantized\"")) {
        return refuse(path, "format", v, "\"mxfp4-pack-quantized\"", e);
    }
    const json_t *groups = NULL;
    int r = get_object(q, path, "config_groups", &groups, e);
    if (r) {
        return r;
    }
    if (json_object_size(groups) == 0) {
        return err_set(e, ERR_FORMAT, "%s: %sconfig_groups is empty", FILE_NAME, path);
    }
    const char *name;
    json_t *group;
    json_object_foreach((json_t *)groups, name, group)
    {
        char p[160], clean[64];
        model_printable(name, strlen(name), clean, sizeof clean);
        snprintf(p, sizeof p, "%sconfig_groups.%s.", path, clean);
        const json_t *w = NULL;
        v = json_object_get(group, "input_activations");
        if (v && !json_is_null(v)) {
            r = refuse(p, "input_activations", v, "null", e);
            break;
        }
        r = get_object(group, p, "weights", &w, e);
        snprintf(p, sizeof p, "%sconfig_groups.%s.weights.", path, clean);
        for (size_t i = 0; !r && i < sizeof weights / sizeof *weights; i++) {
            v = json_object_get(w, weights[i].key);
            if (!v || !is_json(v, weights[i].want)) {
                r = refuse(p, weights[i].key, v, weights[i].want, e);
            }
        }
        if (r) {
            break;
        }
    }
    return r;
}

/* A token id of the top level, else of text_config; absent or null: MODEL_NONE. */
static int get_token(const json_t *top, const json_t *text, const char *key, uint32_t *id,
                     struct err *e)
{
    const json_t *v = json_object_get(top, key);
    if (!v || json_is_null(v)) {
        v = json_object_get(text, key);
    }
    *id = MODEL_NONE;
    if (!v || json_is_null(v)) {
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= MODEL_NONE) {
        return err_set(e, ERR_FORMAT, "%s: %s is %s; it must be one token id", FILE_NAME, key,
                       show(v).s);
    }
    *id = (uint32_t)json_integer_value(v);
    return 0;
}

static int check_architecture(const json_t *top, struct err *e)
{
    const json_t *a = json_object_get(top, "architectures");
    const json_t *t = json_object_get(top, "model_type");
    const json_t *first = json_is_array(a) ? json_array_get(a, 0) : NULL;
    const char *arch = json_string_value(first), *type = json_string_value(t);
    bool ok = arch && strcmp(arch, "KimiK3ForConditionalGeneration") == 0 && type &&
              strcmp(type, "kimi_k3") == 0 && json_array_size(a) == 1;
    if (!ok) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: unknown architecture: architectures is %s and model_type %s; this program "
            "runs KimiK3ForConditionalGeneration (model_type kimi_k3)",
            FILE_NAME, show(a).s, show(t).s);
    }
    return 0;
}

static int load(const char *file, const char *text, size_t n, json_t **out, struct err *e)
{
    json_error_t je;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!j) {
        char clean[200];
        model_printable(je.text, strlen(je.text), clean, sizeof clean);
        return err_set(e, ERR_FORMAT, "%s: line %d, column %d: %s", file, je.line, je.column,
                       clean);
    }
    if (!json_is_object(j)) {
        json_decref(j);
        return err_set(e, ERR_FORMAT, "%s: the file is not a JSON object", file);
    }
    *out = j;
    return 0;
}

static int parse(const json_t *top, struct model_config *c, struct err *e)
{
    const json_t *sec[2] = {NULL, NULL};
    int r = check_architecture(top, e);
    r = r ? r : get_object(top, "", "text_config", &sec[TEXT], e);
    r = r ? r : get_object(sec[TEXT], "text_config.", "linear_attn_config", &sec[LINEAR], e);
    const json_t *v = json_object_get(top, "tie_word_embeddings");
    if (!r && v && !json_is_false(v)) {
        r = refuse("", "tie_word_embeddings", v, "false", e);
    }
    r = r ? r : get_fixed(sec, e);
    r = r ? r : get_ints(sec, c, e);
    r = r ? r : get_reals(sec, c, e);
    if (r) {
        return r;
    }
    const json_t *text = sec[TEXT];
    v = json_object_get(text, "moe_renormalize");
    if (!json_is_boolean(v)) {
        return err_set(e, ERR_FORMAT, "%s: text_config.moe_renormalize is %s; it must be a boolean",
                       FILE_NAME, show(v).s);
    }
    c->renormalize = json_is_true(v);
    v = json_object_get(text, "num_key_value_heads");
    if (!json_is_integer(v) || json_integer_value(v) != (json_int_t)c->heads) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: text_config.num_key_value_heads is %s; it must equal num_attention_heads "
            "(%u)",
            FILE_NAME, show(v).s, c->heads);
    }
    c->lora_eps = 1e-6f; /* the constructor's default: the config has no key for it */
    r = get_layers(sec[LINEAR], c, e);
    if (!r && c->first_dense < c->n_layers) {
        r = get_quant(top, text, e);
    }
    r = r ? r : get_token(top, text, "bos_token_id", &c->bos, e);
    r = r ? r : get_token(top, text, "eos_token_id", &c->eos, e);
    r = r ? r : get_token(top, text, "pad_token_id", &c->pad, e);
    return r ? r : model_config_check(c, e);
}

int model_config_parse(const char *text, size_t n, struct model_config *c, struct err *e)
{
    *c = (struct model_config){0};
    json_t *top = NULL;
    int r = load(FILE_NAME, text, n, &top, e);
    if (r) {
        return r;
    }
    r = parse(top, c, e);
    json_decref(top);
    if (r) {
        model_config_free(c);
    }
    return r;
}

int model_config_generation(const char *text, size_t n, struct model_config *c, struct err *e)
{
    static const char file[] = "generation_config.json";
    json_t *top = NULL;
    int r = load(file, text, n, &top, e);
    if (r) {
        return r;
    }
    const json_t *v = json_object_get(top, "eos_token_id");
    if (json_is_array(v) && json_array_size(v) == 1) {
        v = json_array_get(v, 0);
    }
    if (v && !json_is_null(v)) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= (json_int_t)c->vocab) {
            r = err_set(e, ERR_FORMAT,
                        "%s: eos_token_id is %s; it must be one token id below vocab_size (%u)",
                        file, show(v).s, c->vocab);
        } else {
            c->eos = (uint32_t)json_integer_value(v);
        }
    }
    json_decref(top);
    return r;
}

int model_config_finish(const struct model_config *c, struct err *e)
{
    const struct {
        const char *key;
        uint32_t id;
    } ids[] = {{"bos_token_id", c->bos}, {"eos_token_id", c->eos}, {"pad_token_id", c->pad}};
    for (size_t i = 0; i < 3; i++) {
        if (ids[i].id != MODEL_NONE && ids[i].id >= c->vocab) {
            return err_set(e, ERR_FORMAT, "%s: %s is %u; it must be below vocab_size (%u)",
                           FILE_NAME, ids[i].key, ids[i].id, c->vocab);
        }
    }
    if (c->eos == MODEL_NONE) {
        return err_set(e, ERR_FORMAT,
                       "%s: eos_token_id is missing, here and in "
                       "generation_config.json",
                       FILE_NAME);
    }
    return 0;
}

int model_config_check(const struct model_config *c, struct err *e)
{
    for (size_t i = 0; i < sizeof int_fields / sizeof *int_fields; i++) {
        const struct int_field *f = &int_fields[i];
        uint32_t x;
        memcpy(&x, (const char *)c + f->at, sizeof x);
        if (x < f->min || x > f->max) {
            return err_set(e, ERR_FORMAT, "%s: %s is %u; it must be an integer from %u to %u",
                           FILE_NAME, f->key, x, f->min, f->max);
        }
    }
    for (size_t i = 0; i < sizeof real_fields / sizeof *real_fields; i++) {
        const struct real_field *f = &real_fields[i];
        float x;
        memcpy(&x, (const char *)c + f->at, sizeof x);
        if (!(x >= (float)f->min && x <= (float)f->max)) {
            return err_set(e, ERR_FORMAT, "%s: %s is %g; it must be a number from %g to %g",
                           FILE_NAME, f->key, (double)x, f->min, f->max);
        }
    }
    if (c->first_dense > c->n_layers) {
        return err_set(e, ERR_FORMAT, "%s: first_k_dense_replace is %u, more than the %u layers",
                       FILE_NAME, c->first_dense, c->n_layers);
    }
    if (c->topk > c->n_experts) {
        return err_set(e, ERR_FORMAT, "%s: num_experts_per_token is %u, more than num_experts (%u)",
                       FILE_NAME, c->topk, c->n_experts);
    }
    /* Each is the number of input columns of a packed matrix (latent: w1 and w3, moe_inter: w2),
     * and an MXFP4 scale covers 32 columns. */
    if (c->moe_inter % 32 != 0 || c->latent % 32 != 0) {
        bool m = c->moe_inter % 32 != 0;
        return err_set(e, ERR_FORMAT, "%s: %s is %u; it must be a multiple of 32, the MXFP4 block",
                       FILE_NAME, m ? "moe_intermediate_size" : "routed_expert_hidden_size",
                       m ? c->moe_inter : c->latent);
    }
    if ((uint64_t)(c->n_layers - c->first_dense) * c->n_experts > MODEL_MAX_EXPERT_OBJECTS) {
        return err_set(e, ERR_LIMIT,
                       "%s: %u MoE layers of %u experts are more than the %u experts "
                       "allowed in all",
                       FILE_NAME, c->n_layers - c->first_dense, c->n_experts,
                       MODEL_MAX_EXPERT_OBJECTS);
    }
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (c->attn[l] != MODEL_KDA && c->attn[l] != MODEL_MLA) {
            return err_set(e, ERR_FORMAT, "%s: layer %u has no kind of attention", FILE_NAME, l);
        }
    }
    return 0;
}

void model_config_free(struct model_config *c)
{
    free(c->attn);
    *c = (struct model_config){0};
}
