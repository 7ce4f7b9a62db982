// Counts the words in one share of a book.
//
//   map --book /in/book.txt [--task 3 --tasks 16] [--out /out/counts.tsv]
//
// Task N of M takes the M-th part of the book, in bytes; --task and --tasks are what souk says in SOUK_TASK and
// SOUK_TASK_COUNT, unless they are given. A share begins and ends at white space: what lies across a border belongs to
// the share in which it begins. So each word of the book is counted exactly once, whatever M is.
//
// Writes a line that says which share this is, then one line a word, sorted: the word, a tab, its count.

#define _POSIX_C_SOURCE 200809L // fseeko: a book may be longer than a long can say

#include "share.h"
#include "words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const PROGRAM = "map";

enum { SHOWN = 5 }; // of the commonest words, in the task's log

typedef struct {
    FILE *file;
    const char *path;
    uint64_t at, size; // in bytes
} Book;

static Book open_book(const char *path)
{
    Book book = {.file = fopen(path, "rb"), .path = path};
    if (book.file == NULL)
        fail("%s: %s", path, strerror(errno));
    off_t size = fseeko(book.file, 0, SEEK_END) == 0 ? ftello(book.file) : -1;
    if (size < 0)
        fail("%s: %s; the book must be a file", path, strerror(errno));
    if (size == 0)
        fail("%s is empty", path);
    if ((uint64_t)size > BOOK_BYTES_MAX)
        fail("%s has %" PRIu64 " bytes, at most %" PRIu64 " are read", path, (uint64_t)size, BOOK_BYTES_MAX);
    book.size = (uint64_t)size;
    return book;
}

static void go_to(Book *book, uint64_t at)
{
    if (fseeko(book->file, (off_t)at, SEEK_SET) != 0)
        fail("%s: %s", book->path, strerror(errno));
    book->at = at;
}

static int next_byte(Book *book)
{
    int byte = fgetc(book->file);
    if (byte == EOF && ferror(book->file))
        fail("%s: cannot be read at byte %" PRIu64 ": %s", book->path, book->at, strerror(errno));
    book->at += byte != EOF;
    return byte;
}

static int is_space(int byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

// The character that begins with this byte.
static wint_t next_character(Book *book, int byte)
{
    char bytes[5] = {(char)byte};
    uint64_t from = book->at - 1;
    int length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    for (int i = 1; i < length; i++) {
        int next = next_byte(book);
        bytes[i] = (char)(next == EOF ? 0 : next);
    }
    wint_t character;
    if (byte == 0)
        fail("%s: byte %" PRIu64 " is 0, so this is no text", book->path, from);
    if (decode(bytes, &character) != length)
        fail("%s: byte %" PRIu64 " is no UTF-8; convert the book first, as with iconv -t utf-8", book->path, from);
    return character;
}

// Counts the words of the share; returns their number.
static uint64_t count_words(Book *book, Share *share, Words *words)
{
    // Before the first border lies nothing. At any other one, the byte before it tells whether it cuts a word; the
    // share before this one goes on to the end of that.
    uint64_t border = share->from, end = share->to;
    int after_space = 1;
    go_to(book, border > 0 ? border - 1 : 0);
    if (border > 0)
        for (int byte = 0; byte != EOF && !is_space(byte);)
            byte = next_byte(book);
    share->from = book->at;

    Spelling spelling = {0};
    uint64_t total = 0;
    for (int byte = 0; byte != EOF;) {
        if (book->at >= end && after_space)
            break;
        byte = next_byte(book);
        wint_t character = byte == EOF ? 0 : next_character(book, byte);
        int bytes;
        const char *word = spell(&spelling, character, &bytes);
        if (bytes < 0)
            fail("%s: the word that ends behind byte %" PRIu64 " has more than %d bytes: is this a text?", book->path,
                 book->at, WORD_BYTES_MAX);
        if (word != NULL) {
            words_add(words, word, bytes, 1);
            total++;
        }
        after_space = is_space(byte);
    }
    share->to = book->at;
    return total;
}

static uint64_t whole(const char *name, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low || value > high)
        fail("%s must be a whole number from %" PRIu64 " to %" PRIu64 ", not \"%s\"", name, low, high, text);
    return value;
}

int main(int argc, char **argv)
{
    const char *book_path = NULL, *out = "/out/counts.tsv", *task = getenv("SOUK_TASK"),
               *tasks = getenv("SOUK_TASK_COUNT");
    struct {
        const char *name, **value;
    } known[] = {{"--book", &book_path}, {"--out", &out}, {"--task", &task}, {"--tasks", &tasks}};
    const int kinds = sizeof known / sizeof known[0];
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        while (k < kinds && strcmp(argv[i], known[k].name) != 0)
            k++;
        if (k == kinds || i + 1 == argc)
            fail("\"%s\" is unknown or has no value, use --book --task --tasks --out", argv[i]);
        *known[k].value = argv[i + 1];
    }
    for (int k = 0; k < kinds; k++)
        if (*known[k].value == NULL)
            fail("%s is missing", known[k].name);

    Share share = {.tasks = (int)whole("--tasks", tasks, 1, TASKS_MAX)};
    share.task = (int)whole("--task", task, 0, (uint64_t)share.tasks - 1);
    Book book = open_book(book_path);
    share.size = book.size;
    share.from = book.size * (uint64_t)share.task / (uint64_t)share.tasks;
    share.to = book.size * ((uint64_t)share.task + 1) / (uint64_t)share.tasks;

    Words words = {0};
    share.words = count_words(&book, &share, &words);
    share.distinct = words.count;
    fclose(book.file);

    words_sort_by_text(&words);
    FILE *file = create(out);
    share_write(&share, file);
    for (int i = 0; i < words.count; i++)
        fprintf(file, "%s\t%" PRIu64 "\n", words.words[i].text, words.words[i].count);
    finish(file, out);

    share_write(&share, stdout);
    words_sort_by_count(&words);
    for (int i = 0; i < words.count && i < SHOWN; i++)
        printf("%6" PRIu64 "  %s\n", words.words[i].count, words.words[i].text);
    return 0;
}
