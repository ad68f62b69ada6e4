/* SPDX-License-Identifier: MIT
 * jget PATH...: reads JSON from standard input and prints what is at each path, a line for each
 * value. A path has names and numbers between dots, "*" stands for every member or element, "#" for
 * how many there are: "peers.*.state", "peers.#", "coverage.percent". Objects and arrays are
 * printed as JSON. Ends with 1 when a path leads nowhere, 2 when the input is no JSON.
 *
 * jget -s KEY=VALUE PATH: of the objects that PATH leads to only those in which KEY is that text.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *only_key, *only_value;

static int show(const json_t *j)
{
    const char *v = only_key ? json_string_value(json_object_get(j, only_key)) : NULL;
    if (only_key && (!v || strcmp(v, only_value) != 0)) {
        return 0;
    }
    if (json_is_string(j)) {
        puts(json_string_value(j));
    } else {
        char *s = json_dumps(j, JSON_ENCODE_ANY | JSON_COMPACT | JSON_PRESERVE_ORDER);
        puts(s ? s : "");
        free(s);
    }
    return 1;
}

static int each(const json_t *j, const char *path);

static int all(const json_t *j, const char *rest)
{
    const char *key;
    json_t *v;
    size_t i;
    int n = 0;
    json_array_foreach((json_t *)(size_t)j, i, v)
    {
        n += each(v, rest);
    }
    json_object_foreach((json_t *)(size_t)j, key, v)
    {
        n += each(v, rest);
    }
    return n;
}

static int each(const json_t *j, const char *path)
{
    char part[256], *end;
    size_t n = strcspn(path, ".");
    const char *rest = path[n] ? path + n + 1 : path + n;
    if (!*path) {
        return show(j);
    }
    if (n >= sizeof part) {
        return 0;
    }
    memcpy(part, path, n);
    part[n] = 0;
    if (!strcmp(part, "*")) {
        return all(j, rest);
    }
    if (!strcmp(part, "#")) {
        printf("%zu\n", json_is_array(j) ? json_array_size(j) : json_object_size(j));
        return 1;
    }
    if (json_is_array(j)) {
        unsigned long i = strtoul(part, &end, 10);
        j = end != part && !*end ? json_array_get(j, i) : NULL;
    } else {
        j = json_object_get(j, part);
    }
    return j ? each(j, rest) : 0;
}

int main(int argc, char **argv)
{
    json_error_t e;
    int first = 1, missing = 0;
    if (argc > 2 && !strcmp(argv[1], "-s")) {
        char *eq = strchr(argv[2], '=');
        if (!eq) {
            return 2;
        }
        *eq = 0;
        only_key = argv[2];
        only_value = eq + 1;
        first = 3;
    }
    json_t *j = json_loadf(stdin, JSON_DECODE_ANY, &e);
    if (!j) {
        fprintf(stderr, "jget: line %d: %s\n", e.line, e.text);
        return 2;
    }
    for (int i = first; i < argc; i++) {
        missing |= !each(j, strcmp(argv[i], ".") ? argv[i] : "");
    }
    json_decref(j);
    return missing;
}
