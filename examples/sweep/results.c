// Reads result.json files: the part of JSON that sweep.c writes, in any layout and order of keys.

#include "results.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    DEPTH_MAX = 8, // folders within folders
    FILE_MAX = 64 * 1024
};

Run runs[RUNS_MAX];
int run_count;

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("chart: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

typedef struct {
    const char *at, *path;
} Reader;

static void skip_space(Reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')
        r->at++;
}

// Takes the character if it comes next.
static int take(Reader *r, char c)
{
    skip_space(r);
    if (*r->at != c)
        return 0;
    r->at++;
    return 1;
}

static void need(Reader *r, char c)
{
    if (!take(r, c))
        fail("%s is no result of a sweep: \"%c\" is missing before \"%.20s\"", r->path, c, r->at);
}

static void read_text(Reader *r, char text[TEXT_MAX])
{
    need(r, '"');
    int n = 0;
    while (*r->at != '"') {
        if (*r->at == '\0' || *r->at == '\\' || n == TEXT_MAX - 1)
            fail("%s: a text is too long, has an escape or does not end", r->path);
        text[n++] = *r->at++;
    }
    text[n] = '\0';
    r->at++;
}

static double read_number(Reader *r)
{
    skip_space(r);
    char *end;
    double value = strtod(r->at, &end);
    if (end == r->at || !isfinite(value))
        fail("%s: a number is missing before \"%.20s\"", r->path, r->at);
    r->at = end;
    return value;
}

static void read_params(Reader *r, Run *run)
{
    need(r, '{');
    if (take(r, '}'))
        return;
    do {
        if (run->param_count == PARAMS_MAX)
            fail("%s: more than %d parameters", r->path, PARAMS_MAX);
        Param *param = &run->params[run->param_count++];
        read_text(r, param->name);
        need(r, ':');
        read_text(r, param->value);
    } while (take(r, ','));
    need(r, '}');
}

static void read_confusion(Reader *r, Run *run)
{
    need(r, '[');
    for (int truth = 0; truth < CLASSES; truth++) {
        need(r, '[');
        for (int c = 0; c < CLASSES; c++) {
            run->confusion[truth][c] = (int)read_number(r);
            if (c + 1 < CLASSES)
                need(r, ',');
        }
        need(r, ']');
        if (truth + 1 < CLASSES)
            need(r, ',');
    }
    need(r, ']');
    run->has_confusion = 1;
}

static void read_run(const char *path)
{
    static char text[FILE_MAX];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';

    if (run_count == RUNS_MAX)
        fail("more than %d results", RUNS_MAX);
    Run *run = &runs[run_count++];
    snprintf(run->path, sizeof run->path, "%s", path);

    Reader r = {text, path};
    need(&r, '{');
    do {
        char key[TEXT_MAX];
        read_text(&r, key);
        need(&r, ':');
        if (strcmp(key, "parameters") == 0) {
            read_params(&r, run);
        } else if (strcmp(key, "confusion") == 0) {
            read_confusion(&r, run);
        } else {
            double value = read_number(&r);
            if (strcmp(key, "accuracy") == 0) {
                run->accuracy = value;
                run->has_accuracy = 1;
            } else if (strcmp(key, "loss") == 0) {
                run->loss = value;
                run->has_loss = 1;
            }
        }
    } while (take(&r, ','));
    need(&r, '}');
    if (!run->has_accuracy || !run->has_loss || !run->has_confusion || run->param_count == 0)
        fail("%s: parameters, accuracy, loss or confusion is missing", path);
}

static void read_folder(const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        fail("%s: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char path[PATH_BYTES];
        struct stat about;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            fail("%s: the path is too long", folder);
        if (stat(path, &about) != 0)
            fail("%s: %s", path, strerror(errno));
        if (S_ISDIR(about.st_mode)) {
            if (depth == DEPTH_MAX)
                fail("%s: folders are nested too deeply", path);
            read_folder(path, depth + 1);
        } else if (strcmp(entry->d_name, "result.json") == 0) {
            read_run(path);
        }
    }
    closedir(dir);
}

void read_results(const char *folder)
{
    read_folder(folder, 1);
}
