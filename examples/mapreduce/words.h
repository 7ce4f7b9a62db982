// Words of a text and how often they occur.

#ifndef WORDS_H
#define WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

enum {
    WORD_BYTES_MAX = 128,      // the longest word of any book is shorter; what is longer is no text
    DISTINCT_MAX = 1024 * 1024 // different words in one table: about 40 MB
};

typedef struct {
    const char *text; // UTF-8, ends with 0
    int bytes;
    uint64_t count;
} Word;

// A hash table; all zero is an empty one.
typedef struct {
    Word *words;
    uint32_t *slots; // index + 1 of the word with this hash, 0: free
    size_t slot_count;
    int count, room;
    char *block; // where the texts of new words go
    size_t block_left;
} Words;

// Puts a word together from the characters of a text, one by one.
//
// A word is a run of letters of any script, in lower case. An apostrophe (' or the typographic one) belongs to it where
// it stands between two letters; everything else ends it: space, digits, hyphens, dashes, quotes.
typedef struct {
    char text[WORD_BYTES_MAX + 1];
    int bytes;      // of text; 0: outside of a word
    int apostrophe; // the last character was one, and a letter stood before it
} Spelling;

// Takes the next character; 0 stands for the end. Returns a finished word, which is good until the next call, or NULL.
// Sets *bytes to the word's length, or to -1 where a word is longer than WORD_BYTES_MAX.
const char *spell(Spelling *spelling, wint_t character, int *bytes);

// Decodes the character at text, which ends with 0; returns its length in bytes, or 0 where it is no UTF-8.
int decode(const char *text, wint_t *character);

// The letters of a word, apostrophes not counted.
int letters(const Word *word);

// Adds to a word's count.
void words_add(Words *words, const char *text, int bytes, uint64_t count);

// Sorts by text, in the order of Unicode's numbers; or the commonest first and equal ones by text. No word can be added
// any more.
void words_sort_by_text(Words *words);
void words_sort_by_count(Words *words);

// Writes 12345 as 12,345 somewhere into text and returns where it begins.
const char *grouped(uint64_t value, char text[32]);

FILE *create(const char *path);
// Closes a file and ends the program where not all of it was written.
void finish(FILE *file, const char *path);

// The name of the program in its messages.
extern const char *const PROGRAM;
// Says on stderr what is wrong and ends the program.
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
