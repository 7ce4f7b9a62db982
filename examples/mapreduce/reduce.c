// Adds up what the tasks counted and writes the statistics of the whole book.
//
//   reduce --in /in/counts --out /out --title "Moby-Dick"
//
// Reads every counts.tsv below the folder --in. The shares must be those of one book and one job and cover the book
// from its first byte to its last, each once; anything else is an error that says what is wrong, and no result is
// written.
//
// Writes table.txt (the commonest words, which it also prints), words.tsv (all words), summary.json and zipf.svg.

#include "share.h"
#include "words.h"
#include "zipf.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const PROGRAM = "reduce";

enum {
    COMMONEST = 25,        // words in the table and the summary
    LONGEST = 10,          // words in the summary
    DEPTH_MAX = 8,         // folders within folders
    PATH_BYTES = 512,
    TITLE_BYTES_MAX = 100, // longer ones do not fit above the chart
    LINE_BYTES = 256       // the first line of a file, or a word, a tab and its count
};

typedef struct {
    Share first;  // of the files read, the first: the others must be of the same book
    Share *of;    // by task
    char *is_there;
    int there;    // tasks
    Words words;
} Book;

// ---- reading

static void add_share(Book *book, const Share *share, const char *path)
{
    if (book->of == NULL) {
        book->first = *share;
        book->of = calloc((size_t)share->tasks, sizeof *book->of);
        book->is_there = calloc((size_t)share->tasks, 1);
        if (book->of == NULL || book->is_there == NULL)
            fail("out of memory for %d tasks", share->tasks);
    }
    if (share->tasks != book->first.tasks || share->size != book->first.size)
        fail("%s belongs to %d tasks over a book of %" PRIu64 " bytes, others to %d tasks over one of %" PRIu64
             "; empty the folder and count again",
             path, share->tasks, share->size, book->first.tasks, book->first.size);
    if (book->is_there[share->task])
        fail("%s: there is another file of task %d; empty the folder and count again", path, share->task);
    book->is_there[share->task] = 1;
    book->of[share->task] = *share;
    book->there++;
}

// Reads a line into text without its end; returns 0 at the end of the file.
static int read_line(FILE *file, char text[LINE_BYTES], const char *path, int number)
{
    if (fgets(text, LINE_BYTES, file) == NULL) {
        if (ferror(file))
            fail("%s: %s", path, strerror(errno));
        return 0;
    }
    if (strchr(text, '\n') == NULL)
        fail("%s:%d: the line is too long, has a zero byte or does not end", path, number);
    return 1;
}

// Whether map would count the text as one word and write it so.
static int is_word(const char *text)
{
    Spelling spelling = {0};
    for (const char *at = text; *at;) {
        wint_t character;
        int length = decode(at, &character), bytes;
        if (length == 0 || spell(&spelling, character, &bytes) != NULL || bytes < 0)
            return 0;
        at += length;
    }
    int bytes;
    const char *word = spell(&spelling, 0, &bytes);
    return word != NULL && strcmp(word, text) == 0;
}

static void read_counts(Book *book, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    char line[LINE_BYTES], previous[LINE_BYTES] = "";
    Share share = {0};
    if (!read_line(file, line, path, 1) || !share_read(&share, line))
        fail("%s is no result of map: the first line does not say which share it is", path);
    add_share(book, &share, path);

    uint64_t words = 0;
    int distinct = 0;
    while (read_line(file, line, path, distinct + 2)) {
        char *tab = strchr(line, '\t'), *end = NULL;
        int number = distinct + 2;
        if (tab == NULL)
            fail("%s:%d: there is no tab between word and count", path, number);
        *tab = '\0';
        if (!is_word(line))
            fail("%s:%d: this is no word as map writes it", path, number);
        if (strcmp(previous, line) >= 0)
            fail("%s:%d: \"%s\" stands behind \"%s\", the words are not sorted", path, number, line, previous);
        errno = 0;
        uint64_t count = strtoull(tab + 1, &end, 10);
        if (tab[1] < '1' || tab[1] > '9' || strcmp(end, "\n") != 0 || errno != 0 || count > share.words - words)
            fail("%s:%d: the count of \"%s\" is no number or more than the share's %" PRIu64 " words", path, number,
                 line, share.words);
        words_add(&book->words, line, (int)(tab - line), count);
        words += count;
        distinct++;
        strcpy(previous, line);
    }
    fclose(file);
    if (words != share.words || distinct != share.distinct)
        fail("%s has %" PRIu64 " words, %d different, but its first line says %" PRIu64 " and %d; count the task again",
             path, words, distinct, share.words, share.distinct);
}

static void read_folder(Book *book, const char *folder, int depth)
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
            read_folder(book, path, depth + 1);
        } else if (strcmp(entry->d_name, "counts.tsv") == 0) {
            read_counts(book, path);
        }
    }
    closedir(dir);
}

// Each byte of the book must lie in exactly one share; returns the words of all.
static uint64_t check_cover(const Book *book)
{
    uint64_t at = 0, words = 0;
    for (int task = 0; task < book->first.tasks; task++) {
        const Share *share = &book->of[task];
        if (!book->is_there[task])
            fail("%d of %d tasks have no counts.tsv, the first is task %d; run the missing tasks",
                 book->first.tasks - book->there, book->first.tasks, task);
        if (share->from != at)
            fail("task %d begins at byte %" PRIu64 ", but the one before it ends at %" PRIu64
                 ": the shares are not of one book; empty the folder and count again",
                 task, share->from, at);
        at = share->to;
        words += share->words;
    }
    if (at != book->first.size)
        fail("the last task ends at byte %" PRIu64 " of %" PRIu64 "; count it again", at, book->first.size);
    return words;
}

// ---- writing

static int once(const Words *words)
{
    int from = words->count; // sorted by count: they are the last ones
    while (from > 0 && words->words[from - 1].count == 1)
        from--;
    return words->count - from;
}

static void write_table(FILE *out, const char *title, const Book *book, uint64_t total)
{
    char number[3][32];
    const Words *words = &book->words;
    fprintf(out, "%s: %s words, %s different, %s of them once\n\n", title, grouped(total, number[0]),
            grouped((uint64_t)words->count, number[1]), grouped((uint64_t)once(words), number[2]));
    fprintf(out, "rank     count  per 1000  word\n");
    for (int i = 0; i < words->count && i < COMMONEST; i++)
        fprintf(out, "%4d  %8s  %8.2f  %s\n", i + 1, grouped(words->words[i].count, number[0]),
                1000.0 * (double)words->words[i].count / (double)total, words->words[i].text);
}

static void write_words(FILE *out, const Words *words)
{
    fprintf(out, "rank\tword\tcount\n");
    for (int i = 0; i < words->count; i++)
        fprintf(out, "%d\t%s\t%" PRIu64 "\n", i + 1, words->words[i].text, words->words[i].count);
}

// The longest first; equally long ones in the order of the list, so the commoner first. Returns their number.
static int find_longest(const Words *words, const Word *longest[LONGEST])
{
    int n = 0;
    for (int i = 0; i < words->count; i++) {
        const Word *word = &words->words[i];
        int at = n, length = letters(word);
        while (at > 0 && letters(longest[at - 1]) < length)
            at--;
        if (at == LONGEST)
            continue;
        if (n < LONGEST)
            n++;
        memmove(longest + at + 1, longest + at, sizeof *longest * (size_t)(n - 1 - at));
        longest[at] = word;
    }
    return n;
}

// Words are letters and apostrophes by now, so they need no escapes.
static void write_summary(FILE *out, const Book *book, uint64_t total)
{
    const Words *words = &book->words;
    fprintf(out,
            "{\n  \"book_bytes\": %" PRIu64 ",\n  \"total_words\": %" PRIu64
            ",\n  \"distinct_words\": %d,\n  \"once\": %d,\n",
            book->first.size, total, words->count, once(words));
    int n = words->count < COMMONEST ? words->count : COMMONEST;
    fprintf(out, "  \"commonest\": [\n");
    for (int i = 0; i < n; i++)
        fprintf(out, "    {\"word\": \"%s\", \"count\": %" PRIu64 "}%s\n", words->words[i].text, words->words[i].count,
                i + 1 < n ? "," : "");
    const Word *longest[LONGEST];
    n = find_longest(words, longest);
    fprintf(out, "  ],\n  \"longest\": [\n");
    for (int i = 0; i < n; i++)
        fprintf(out, "    {\"word\": \"%s\", \"letters\": %d, \"count\": %" PRIu64 "}%s\n", longest[i]->text,
                letters(longest[i]), longest[i]->count, i + 1 < n ? "," : "");
    fprintf(out, "  ]\n}\n");
}

static const char *in_folder(const char *folder, const char *name, char path[PATH_BYTES])
{
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        fail("%s: the path is too long", folder);
    return path;
}

static void check_title(const char *title)
{
    if (title[0] == '\0' || strlen(title) > TITLE_BYTES_MAX)
        fail("--title must have 1 to %d bytes, not %zu", TITLE_BYTES_MAX, strlen(title));
    for (const char *at = title; *at;) {
        wint_t character;
        int length = decode(at, &character);
        if (length == 0 || character < ' ' || character == 0x7f || character == 0xfffe || character == 0xffff)
            fail("--title has a control character or is no UTF-8");
        at += length;
    }
}

int main(int argc, char **argv)
{
    const char *in = "/in/counts", *out = "/out", *title = "the book";
    struct {
        const char *name, **value;
    } known[] = {{"--in", &in}, {"--out", &out}, {"--title", &title}};
    const int kinds = sizeof known / sizeof known[0];
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        while (k < kinds && strcmp(argv[i], known[k].name) != 0)
            k++;
        if (k == kinds || i + 1 == argc)
            fail("\"%s\" is unknown or has no value, use --in --out --title", argv[i]);
        *known[k].value = argv[i + 1];
    }
    check_title(title);

    Book book = {0};
    read_folder(&book, in, 1);
    if (book.there == 0)
        fail("no counts.tsv below %s, run job.toml first", in);
    uint64_t total = check_cover(&book);
    if (total == 0)
        fail("the book has no words");
    words_sort_by_count(&book.words);

    char path[PATH_BYTES];
    write_table(stdout, title, &book, total);
    FILE *table = create(in_folder(out, "table.txt", path));
    write_table(table, title, &book, total);
    finish(table, path);
    FILE *list = create(in_folder(out, "words.tsv", path));
    write_words(list, &book.words);
    finish(list, path);
    FILE *summary = create(in_folder(out, "summary.json", path));
    write_summary(summary, &book, total);
    finish(summary, path);
    FILE *chart = create(in_folder(out, "zipf.svg", path));
    zipf_write(chart, title, &book.words, total);
    finish(chart, path);
    return 0;
}
