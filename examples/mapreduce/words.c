// Words of a text and how often they occur.

#include "words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

enum {
    FIRST_SLOTS = 4096,     // a power of two, as each size that follows
    BLOCK_BYTES = 64 * 1024 // texts are stored in blocks of this size
};

static const wint_t APOSTROPHE = 0x2019;

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", PROGRAM);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

FILE *create(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    return file;
}

void finish(FILE *file, const char *path)
{
    if (ferror(file) | fclose(file))
        fail("%s cannot be written", path);
}

const char *grouped(uint64_t value, char text[32])
{
    char *at = text + 31;
    *at = '\0';
    for (int digits = 0; digits == 0 || value > 0; digits++) {
        if (digits > 0 && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + value % 10);
        value /= 10;
    }
    return at;
}

// ---- characters

int decode(const char *text, wint_t *character)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *character = at[0];
        return 1;
    }
    int bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    static const wint_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000}; // less would be a longer form than need be
    wint_t c = at[0] & (0xffu >> (bytes + 1));
    if (at[0] < 0xc0 || at[0] >= 0xf8)
        return 0;
    for (int i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) // also the final 0
            return 0;
        c = c << 6 | (at[i] & 0x3f);
    }
    if (c < smallest[bytes] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *character = c;
    return bytes;
}

// Writes the character; returns its length in bytes.
static int encode(wint_t c, char *text)
{
    int bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char mark[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = bytes - 1; i > 0; i--) {
        text[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    text[0] = (char)(mark[bytes] | c);
    return bytes;
}

// ---- words

const char *spell(Spelling *spelling, wint_t character, int *bytes)
{
    if (iswalpha(character)) {
        char more[5];
        int length = 0;
        if (spelling->apostrophe)
            more[length++] = '\'';
        length += encode(towlower(character), more + length);
        spelling->apostrophe = 0;
        if (spelling->bytes + length > WORD_BYTES_MAX) {
            *bytes = -1;
            return NULL;
        }
        memcpy(spelling->text + spelling->bytes, more, (size_t)length);
        spelling->bytes += length;
    } else if ((character == '\'' || character == APOSTROPHE) && spelling->bytes > 0 && !spelling->apostrophe) {
        spelling->apostrophe = 1;
    } else if (spelling->bytes > 0) {
        *bytes = spelling->bytes;
        spelling->text[spelling->bytes] = '\0';
        spelling->bytes = spelling->apostrophe = 0;
        return spelling->text;
    }
    *bytes = 0;
    return NULL;
}

int letters(const Word *word)
{
    int count = 0;
    for (const char *at = word->text; *at; at++)
        count += *at != '\'' && ((unsigned char)*at & 0xc0) != 0x80; // the first byte of each character
    return count;
}

// ---- the table

static void *need(void *memory, const Words *words)
{
    if (memory == NULL)
        fail("out of memory after %d different words; give the task more in [resources]", words->count);
    return memory;
}

// FNV-1a.
static uint32_t hash(const char *text, int bytes)
{
    uint32_t h = 2166136261u;
    for (int i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ h >> 15;
}

static uint32_t *find_slot(const Words *words, const char *text, int bytes)
{
    size_t mask = words->slot_count - 1, at = hash(text, bytes) & mask;
    while (words->slots[at] != 0) {
        const Word *word = &words->words[words->slots[at] - 1];
        if (word->bytes == bytes && memcmp(word->text, text, (size_t)bytes) == 0)
            break;
        at = (at + 1) & mask;
    }
    return &words->slots[at];
}

// Doubles the slots; they stay half empty, so that a search is short.
static void grow(Words *words)
{
    words->slot_count = words->slot_count ? words->slot_count * 2 : FIRST_SLOTS;
    free(words->slots);
    words->slots = need(calloc(words->slot_count, sizeof *words->slots), words);
    words->room = (int)(words->slot_count / 2);
    words->words = need(realloc(words->words, sizeof *words->words * (size_t)words->room), words);
    for (int i = 0; i < words->count; i++)
        *find_slot(words, words->words[i].text, words->words[i].bytes) = (uint32_t)i + 1;
}

static const char *store(Words *words, const char *text, int bytes)
{
    size_t size = (size_t)bytes + 1;
    if (words->block_left < size) {
        words->block = need(malloc(BLOCK_BYTES), words);
        words->block_left = BLOCK_BYTES;
    }
    char *stored = words->block;
    memcpy(stored, text, (size_t)bytes);
    stored[bytes] = '\0';
    words->block += size;
    words->block_left -= size;
    return stored;
}

void words_add(Words *words, const char *text, int bytes, uint64_t count)
{
    if (words->count == words->room)
        grow(words);
    uint32_t *slot = find_slot(words, text, bytes);
    if (*slot == 0) {
        if (words->count == DISTINCT_MAX)
            fail("more than %d different words: is this a text?", DISTINCT_MAX);
        words->words[words->count] = (Word){store(words, text, bytes), bytes, 0};
        *slot = (uint32_t)++words->count;
    }
    words->words[*slot - 1].count += count;
}

static int by_text(const void *left, const void *right)
{
    return strcmp(((const Word *)left)->text, ((const Word *)right)->text);
}

static int by_count(const void *left, const void *right)
{
    const Word *a = left, *b = right;
    return a->count != b->count ? (a->count > b->count ? -1 : 1) : strcmp(a->text, b->text);
}

void words_sort_by_text(Words *words)
{
    if (words->count > 0)
        qsort(words->words, (size_t)words->count, sizeof *words->words, by_text);
}

void words_sort_by_count(Words *words)
{
    if (words->count > 0)
        qsort(words->words, (size_t)words->count, sizeof *words->words, by_count);
}
