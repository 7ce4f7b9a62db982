// A chart of word counts: how often the word of each rank occurs.
//
// Both axes are logarithmic. Zipf's law says that the word of rank r occurs 1/r times as often as the commonest one; it
// is the dashed line, scaled so that all its counts together are as many words as the book has.

#include "zipf.h"

#include <math.h>
#include <stdarg.h>

// The frame, in pixels.
static const double LEFT = 84, RIGHT = 690, TOP = 66, BOTTOM = 420;
static const char *const BLUE = "#0072b2", *const RED = "#d55e00";

typedef struct {
    double ranks, counts; // the powers of ten at the ends of the axes
} Scale;

static double to_x(const Scale *scale, double rank)
{
    return LEFT + log10(rank) / scale->ranks * (RIGHT - LEFT);
}

static double to_y(const Scale *scale, double count)
{
    return BOTTOM - log10(count) / scale->counts * (BOTTOM - TOP);
}

__attribute__((format(printf, 5, 6))) static void svg_text(FILE *out, double x, double y, const char *style,
                                                           const char *format, ...)
{
    char text[512];
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

// The power of ten that holds the value, at least the first.
static double decades(double value)
{
    double power = 1, top = 10;
    while (top < value) {
        power++;
        top *= 10;
    }
    return power;
}

static void draw_axes(FILE *out, const Scale *scale)
{
    char text[32];
    uint64_t ten = 1;
    for (int power = 0; power <= (int)scale->counts; power++, ten *= 10) {
        double y = to_y(scale, (double)ten);
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", LEFT, y, RIGHT, y,
                power == 0 ? "#333333" : "#e3e3e3");
        svg_text(out, LEFT - 8, y + 4, "text-anchor=\"end\"", "%s", grouped(ten, text));
    }
    ten = 1;
    for (int power = 0; power <= (int)scale->ranks; power++, ten *= 10) {
        double x = to_x(scale, (double)ten);
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x, TOP, x, BOTTOM,
                power == 0 ? "#333333" : "#e3e3e3");
        svg_text(out, x, BOTTOM + 20, "text-anchor=\"middle\"", "%s", grouped(ten, text));
    }
    svg_text(out, (LEFT + RIGHT) / 2, BOTTOM + 44, "text-anchor=\"middle\" class=\"name\"",
             "rank of the word, the commonest first");
    fprintf(out, "<g transform=\"translate(22 %.1f) rotate(-90)\">", (TOP + BOTTOM) / 2);
    svg_text(out, 0, 0, "text-anchor=\"middle\" class=\"name\"", "how often it occurs");
    fprintf(out, "</g>\n");
}

// Zipf's law between the ranks where it stays within the frame.
static void draw_law(FILE *out, const Scale *scale, int ranks, uint64_t total)
{
    double sum = 0;
    for (int rank = ranks; rank > 0; rank--)
        sum += 1.0 / rank;
    double first = (double)total / sum, last_rank = fmin(ranks, first), first_rank = 1;
    double top = pow(10, scale->counts);
    if (first > top)
        first_rank = first / top;
    if (last_rank <= first_rank)
        return;
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"1.5\" "
            "stroke-dasharray=\"6 5\"/>\n",
            to_x(scale, first_rank), to_y(scale, first / first_rank), to_x(scale, last_rank),
            to_y(scale, first / last_rank), RED);
}

// A dot a word, but only one where many would lie upon each other.
static void draw_words(FILE *out, const Scale *scale, const Words *words)
{
    double last_x = -1, last_y = -1;
    fprintf(out, "<g fill=\"%s\">\n", BLUE);
    for (int i = 0; i < words->count; i++) {
        double x = to_x(scale, i + 1), y = to_y(scale, (double)words->words[i].count);
        if (i > 0 && i + 1 < words->count && fabs(x - last_x) < 1.5 && fabs(y - last_y) < 1.5)
            continue;
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\"/>\n", x, y);
        last_x = x;
        last_y = y;
    }
    fprintf(out, "</g>\n");
    // The words at these ranks by name; the last ones of a long list are as common as thousands of others.
    static const int named[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
    for (size_t n = 0; n < sizeof named / sizeof named[0] && named[n] <= words->count; n++) {
        const Word *word = &words->words[named[n] - 1];
        double x = to_x(scale, named[n]), y = to_y(scale, (double)word->count);
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" stroke=\"white\"/>\n", x, y, BLUE);
        svg_text(out, x + 7, y - 6, "", "%s", word->text);
    }
}

void zipf_write(FILE *out, const char *title, const Words *words, uint64_t total)
{
    char number[2][32];
    Scale scale = {decades(words->count), decades((double)words->words[0].count)};
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 740 510\" width=\"740\" height=\"510\" "
                 "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n"
                 "<style>.name{font-weight:bold}.quiet{fill:#666666}</style>\n"
                 "<rect width=\"740\" height=\"510\" fill=\"white\"/>\n");
    svg_text(out, 22, 30, "font-size=\"18\" class=\"name\"", "%s: %s words, %s different", title,
             grouped(total, number[0]), grouped((uint64_t)words->count, number[1]));
    draw_axes(out, &scale);
    draw_law(out, &scale, words->count, total);
    draw_words(out, &scale, words);
    double y = BOTTOM + 74;
    fprintf(out,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\" fill=\"%s\"/>"
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"1.5\" "
            "stroke-dasharray=\"6 5\"/>\n",
            LEFT + 10, y - 4, BLUE, LEFT + 150, y - 4, LEFT + 178, y - 4, RED);
    svg_text(out, LEFT + 20, y, "class=\"quiet\"", "a word of the book");
    svg_text(out, LEFT + 186, y, "class=\"quiet\"", "Zipf's law: 1/rank, for as many words in all");
    fprintf(out, "</svg>\n");
}
