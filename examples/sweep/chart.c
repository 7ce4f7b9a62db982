// Turns the results of a sweep into a table and a chart.
//
//   chart --in /in/results --out /out --x lr --series hidden
//
// Reads every result.json below the folder --in, writes table.txt (the best run first) and chart.svg into the folder
// --out, and prints the table. The chart has one line for each value of --series over the values of --x; a small dot
// is one run, the line joins the means. Beside it stands the confusion matrix of the best run.

#include "results.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SERIES_MAX = 6, // as many colours as there are below
    X_MAX = 12      // more labels would overlap
};

// ---- what the results say

// The best run first; equal runs in the order of their files.
static int by_quality(const void *left, const void *right)
{
    const Run *a = left, *b = right;
    if (a->accuracy != b->accuracy)
        return a->accuracy > b->accuracy ? -1 : 1;
    if (a->loss != b->loss)
        return a->loss < b->loss ? -1 : 1;
    return strcmp(a->path, b->path);
}

// Numbers by their value, other texts by the alphabet.
static int compare_values(const char *a, const char *b)
{
    char *a_end, *b_end;
    double x = strtod(a, &a_end), y = strtod(b, &b_end);
    if (*a_end == '\0' && *b_end == '\0' && x != y)
        return x < y ? -1 : 1;
    return strcmp(a, b);
}

static const char *param(const Run *run, const char *name)
{
    for (int i = 0; i < run->param_count; i++)
        if (strcmp(run->params[i].name, name) == 0)
            return run->params[i].value;
    fail("%s has no parameter \"%s\"", run->path, name);
}

// Collects the different values of a parameter in order; returns their number.
static int distinct(const char *name, const char **values, int max)
{
    int n = 0;
    for (int i = 0; i < run_count; i++) {
        const char *value = param(&runs[i], name);
        int at = 0;
        while (at < n && compare_values(values[at], value) < 0)
            at++;
        if (at < n && strcmp(values[at], value) == 0)
            continue;
        if (n == max)
            fail("the parameter \"%s\" has more than %d values, too many for one chart", name, max);
        memmove(values + at + 1, values + at, sizeof *values * (size_t)(n - at));
        values[at] = value;
        n++;
    }
    return n;
}

static int varies(const char *name)
{
    for (int i = 1; i < run_count; i++)
        if (strcmp(param(&runs[i], name), param(&runs[0], name)) != 0)
            return 1;
    return 0;
}

// ---- table

static void write_table(FILE *out)
{
    const Run *best = &runs[0];
    fprintf(out, "rank");
    for (int p = 0; p < best->param_count; p++)
        if (varies(best->params[p].name))
            fprintf(out, "  %8s", best->params[p].name);
    fprintf(out, "  accuracy    loss\n");
    for (int i = 0; i < run_count; i++) {
        fprintf(out, "%4d", i + 1);
        for (int p = 0; p < best->param_count; p++)
            if (varies(best->params[p].name))
                fprintf(out, "  %8s", param(&runs[i], best->params[p].name));
        fprintf(out, "  %8.4f  %6.4f\n", runs[i].accuracy, runs[i].loss);
    }
    for (int p = 0; p < best->param_count; p++)
        if (run_count > 1 && !varies(best->params[p].name))
            fprintf(out, "the same in all runs: %s %s\n", best->params[p].name, best->params[p].value);
}

// ---- chart

static const char *const COLOURS[SERIES_MAX] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#555555"};

// The left panel's frame, then the matrix's, in pixels.
static const double LEFT = 76, RIGHT = 540, TOP = 74, BOTTOM = 380;
static const double MATRIX_LEFT = 640, CELL = 28;

static void svg_text(FILE *out, double x, double y, const char *style, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    for (const char *c = text; *c; c++) {
        if (*c == '<')
            fputs("&lt;", out);
        else if (*c == '&')
            fputs("&amp;", out);
        else
            fputc(*c, out);
    }
    fputs("</text>\n", out);
}

// The vertical axis: a step of 1, 2 or 5 times a power of ten that gives about six lines around all runs.
typedef struct {
    double low, high, step;
} Axis;

static Axis accuracy_axis(void)
{
    double low = 1, high = 0;
    for (int i = 0; i < run_count; i++) {
        low = fmin(low, runs[i].accuracy);
        high = fmax(high, runs[i].accuracy);
    }
    double rough = fmax(high - low, 0.01) / 5, power = pow(10, floor(log10(rough)));
    double step = power * (rough > 5 * power ? 10 : rough > 2 * power ? 5 : rough > power ? 2 : 1);
    Axis axis = {floor(low / step) * step, ceil(high / step) * step, step};
    if (axis.high - axis.low < step / 2)
        axis.low -= step;
    return axis;
}

static double to_y(const Axis *axis, double accuracy)
{
    return BOTTOM - (accuracy - axis->low) / (axis->high - axis->low) * (BOTTOM - TOP);
}

static double to_x(int at, int count)
{
    return LEFT + (at + 0.5) * (RIGHT - LEFT) / count;
}

static void draw_axes(FILE *out, const Axis *axis, const char *x_name, const char **xs, int x_count)
{
    int lines = (int)lround((axis->high - axis->low) / axis->step);
    int decimals = axis->step < 0.0099 ? 3 : 2;
    for (int i = 0; i <= lines; i++) {
        double value = axis->low + i * axis->step, y = to_y(axis, value);
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", LEFT, y, RIGHT, y,
                i == 0 ? "#333333" : "#e3e3e3");
        svg_text(out, LEFT - 8, y + 4, "text-anchor=\"end\"", "%.*f", decimals, value);
    }
    for (int i = 0; i < x_count; i++) {
        double x = to_x(i, x_count);
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333333\"/>\n", x, BOTTOM, x,
                BOTTOM + 5);
        svg_text(out, x, BOTTOM + 20, "text-anchor=\"middle\"", "%s", xs[i]);
    }
    svg_text(out, (LEFT + RIGHT) / 2, BOTTOM + 44, "text-anchor=\"middle\" class=\"name\"", "%s", x_name);
    fprintf(out, "<g transform=\"translate(22 %.1f) rotate(-90)\">", (TOP + BOTTOM) / 2);
    svg_text(out, 0, 0, "text-anchor=\"middle\" class=\"name\"", "accuracy on the test images");
    fprintf(out, "</g>\n");
}

static void draw_series(FILE *out, const Axis *axis, const char *x_name, const char **xs, int x_count,
                        const char *series_name, const char *series, int index, int series_count)
{
    const char *colour = COLOURS[index];
    double aside = (index - (series_count - 1) / 2.0) * 10; // so that dots of two series do not hide each other
    double mean_x[X_MAX], mean_y[X_MAX];
    int means = 0;
    for (int i = 0; i < x_count; i++) {
        double sum = 0, x = to_x(i, x_count) + aside;
        int n = 0;
        for (int r = 0; r < run_count; r++) {
            if (strcmp(param(&runs[r], x_name), xs[i]) != 0 || strcmp(param(&runs[r], series_name), series) != 0)
                continue;
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" fill-opacity=\"0.45\"/>\n", x,
                    to_y(axis, runs[r].accuracy), colour);
            sum += runs[r].accuracy;
            n++;
        }
        if (n > 0) {
            mean_x[means] = x;
            mean_y[means++] = to_y(axis, sum / n);
        }
    }
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (int i = 0; i < means; i++)
        fprintf(out, "%s%.1f,%.1f", i ? " " : "", mean_x[i], mean_y[i]);
    fprintf(out, "\"/>\n");
    for (int i = 0; i < means; i++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\" stroke=\"white\"/>\n", mean_x[i], mean_y[i],
                colour);
}

static void draw_legend(FILE *out, const char *series_name, const char **series, int count)
{
    double x = LEFT + 8, y = BOTTOM + 72;
    svg_text(out, x, y, "class=\"name\"", "%s", series_name);
    x += 16 + 8 * (double)strlen(series_name);
    for (int i = 0; i < count; i++) {
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"/>"
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\" stroke=\"white\"/>\n",
                x, y - 4, x + 24, y - 4, COLOURS[i], x + 12, y - 4, COLOURS[i]);
        svg_text(out, x + 30, y, "", "%s", series[i]);
        x += 52 + 8 * (double)strlen(series[i]);
    }
    svg_text(out, RIGHT, y, "text-anchor=\"end\" class=\"quiet\"", "small dot: one run, line: mean");
}

static void draw_confusion(FILE *out, const Run *best)
{
    int top = 1, wrong = 0;
    for (int t = 0; t < CLASSES; t++)
        for (int c = 0; c < CLASSES; c++) {
            top = best->confusion[t][c] > top ? best->confusion[t][c] : top;
            wrong += t == c ? 0 : best->confusion[t][c];
        }
    for (int t = 0; t < CLASSES; t++) {
        double y = TOP + t * CELL;
        svg_text(out, MATRIX_LEFT - 9, y + CELL / 2 + 4, "text-anchor=\"end\"", "%d", t);
        svg_text(out, MATRIX_LEFT + (t + 0.5) * CELL, TOP + CLASSES * CELL + 18, "text-anchor=\"middle\"", "%d", t);
        for (int c = 0; c < CLASSES; c++) {
            int n = best->confusion[t][c];
            double x = MATRIX_LEFT + c * CELL, strength = t == c ? 0.15 + 0.75 * n / top : fmin(0.25 + 0.15 * n, 0.9);
            fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" fill-opacity=\"%.2f\"/>\n",
                    x, y, CELL - 1, CELL - 1, n == 0 ? "#f2f2f2" : t == c ? "#0072b2" : "#d55e00",
                    n == 0 ? 1.0 : strength);
            if (n > 0)
                svg_text(out, x + CELL / 2 - 0.5, y + CELL / 2 + 4,
                         strength > 0.6 ? "text-anchor=\"middle\" fill=\"white\"" : "text-anchor=\"middle\"", "%d", n);
        }
    }
    svg_text(out, MATRIX_LEFT + CLASSES * CELL / 2, BOTTOM + 20, "text-anchor=\"middle\" class=\"name\"",
             "predicted digit");
    fprintf(out, "<g transform=\"translate(%.1f %.1f) rotate(-90)\">", MATRIX_LEFT - 34, TOP + CLASSES * CELL / 2);
    svg_text(out, 0, 0, "text-anchor=\"middle\" class=\"name\"", "true digit");
    fprintf(out, "</g>\n");
    svg_text(out, MATRIX_LEFT, TOP - 18, "class=\"name\"", "best run: accuracy %.4f, %d mistakes", best->accuracy, wrong);
    char text[256] = "";
    size_t used = 0;
    for (int p = 0; p < best->param_count; p++)
        if (varies(best->params[p].name) && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "", best->params[p].name,
                                     best->params[p].value);
    svg_text(out, MATRIX_LEFT, BOTTOM + 72, "class=\"quiet\"", "%s", text);
}

static void write_chart(FILE *out, const char *x_name, const char *series_name)
{
    const char *xs[X_MAX + 1], *series[SERIES_MAX + 1];
    int x_count = distinct(x_name, xs, X_MAX), series_count = distinct(series_name, series, SERIES_MAX);
    Axis axis = accuracy_axis();

    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 480\" width=\"960\" height=\"480\" "
                 "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n"
                 "<style>.name{font-weight:bold}.quiet{fill:#666666}</style>\n"
                 "<rect width=\"960\" height=\"480\" fill=\"white\"/>\n");
    svg_text(out, 22, 30, "font-size=\"18\" class=\"name\"", "%d training runs on handwritten digits", run_count);
    draw_axes(out, &axis, x_name, xs, x_count);
    for (int s = 0; s < series_count; s++)
        draw_series(out, &axis, x_name, xs, x_count, series_name, series[s], s, series_count);
    draw_legend(out, series_name, series, series_count);
    draw_confusion(out, &runs[0]);
    fprintf(out, "</svg>\n");
}

static FILE *create(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    return file;
}

static void finish(FILE *file, const char *name)
{
    if (ferror(file) | fclose(file))
        fail("%s cannot be written", name);
}

int main(int argc, char **argv)
{
    const char *in = "/in/results", *out = "/out", *x = "lr", *series = "hidden";
    struct {
        const char *name, **value;
    } known[] = {{"--in", &in}, {"--out", &out}, {"--x", &x}, {"--series", &series}};
    const int kinds = sizeof known / sizeof known[0];
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        while (k < kinds && strcmp(argv[i], known[k].name) != 0)
            k++;
        if (k == kinds || i + 1 == argc)
            fail("\"%s\" is unknown or has no value, use --in --out --x --series", argv[i]);
        *known[k].value = argv[i + 1];
    }

    read_results(in);
    if (run_count == 0)
        fail("no result.json below %s, run the sweep first", in);
    qsort(runs, (size_t)run_count, sizeof runs[0], by_quality);

    write_table(stdout);
    FILE *table = create(out, "table.txt");
    write_table(table);
    finish(table, "table.txt");
    FILE *chart = create(out, "chart.svg");
    write_chart(chart, x, series);
    finish(chart, "chart.svg");
    return 0;
}
